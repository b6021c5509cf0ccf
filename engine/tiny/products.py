"""The six advertised products, drawn as softly lit solids.

A product stands on y = 0, is about two units wide or one and a half high, and faces right.
"""

from collections.abc import Callable

from engine.tiny.shapes import (
    Colour,
    Grid,
    Light,
    Sprite,
    box,
    circle,
    ellipse,
    mix,
    polygon,
    ring,
    segment,
    smooth_union,
)

COLOUR_VALUES: dict[str, Colour] = {
    "red": (0.86, 0.08, 0.10),
    "orange": (0.98, 0.48, 0.04),
    "yellow": (0.98, 0.85, 0.10),
    "green": (0.08, 0.62, 0.24),
    "blue": (0.08, 0.28, 0.88),
    "purple": (0.52, 0.16, 0.74),
    "white": (0.96, 0.96, 0.96),
    "black": (0.07, 0.07, 0.08),
}
DARK: Colour = (0.10, 0.10, 0.12)
CHALK: Colour = (0.93, 0.93, 0.92)


def accent(colour: Colour) -> Colour:
    """The contrast colour of soles, labels and trims: dark on a light product, else chalk."""
    return (0.30, 0.31, 0.34) if min(colour) > 0.8 else CHALK


def sneaker(sprite: Sprite, g: Grid, colour: Colour, light: Light) -> None:
    upper = polygon(
        g,
        [
            (-0.82, 0.18),
            (-0.86, 0.62),
            (-0.74, 0.80),
            (-0.30, 0.74),
            (-0.02, 0.52),
            (0.38, 0.40),
            (0.72, 0.34),
            (0.86, 0.22),
            (0.86, 0.16),
        ],
        0.07,
    )
    sprite.flat(g, ellipse(g, -0.50, 0.80, 0.34, 0.09), mix(colour, DARK, 0.8))
    sprite.shaded(g, upper, colour, light, bevel=0.30, gloss=0.6)
    sprite.shaded(g, ellipse(g, 0.80, 0.20, 0.22, 0.17), mix(colour, DARK, 0.25), light, bevel=0.2)
    for x in (-0.42, -0.16):
        stripe = segment(g, (x - 0.06, 0.22), (x + 0.12, 0.54), 0.055)
        sprite.flat(g, stripe, accent(colour), 0.95)
    sole = box(g, -0.98, 0.0, 1.02, 0.22, 0.10)
    sprite.shaded(g, sole, accent(colour), light, bevel=0.14, gloss=0.3)


def car(sprite: Sprite, g: Grid, colour: Colour, light: Light) -> None:
    cabin = polygon(g, [(-0.62, 0.50), (-0.42, 0.82), (0.22, 0.82), (0.56, 0.50)], 0.08)
    body = box(g, -1.05, 0.16, 1.05, 0.56, 0.17)
    sprite.shaded(g, smooth_union(cabin, body, 0.12), colour, light, bevel=0.30, gloss=0.9)
    glass = mix(light.ambient, (0.35, 0.50, 0.62), 0.6)
    rear = [(-0.50, 0.54), (-0.36, 0.78), (-0.10, 0.78), (-0.10, 0.54)]
    front = [(0.00, 0.54), (0.00, 0.78), (0.19, 0.78), (0.42, 0.54)]
    for pane in (rear, front):
        sprite.shaded(g, polygon(g, pane, 0.03), glass, light, bevel=0.3, gloss=0.9)
    for x in (-0.60, 0.60):
        sprite.flat(g, circle(g, x, 0.19, 0.25), mix(colour, DARK, 0.85))
        sprite.shaded(g, circle(g, x, 0.19, 0.20), DARK, light, bevel=0.12)
        sprite.shaded(g, circle(g, x, 0.19, 0.10), (0.78, 0.80, 0.83), light, bevel=0.08)
    sprite.flat(g, ellipse(g, 0.98, 0.42, 0.08, 0.07), (1.0, 0.96, 0.80))


def bottle(sprite: Sprite, g: Grid, colour: Colour, light: Light) -> None:
    body = box(g, -0.32, 0.0, 0.32, 0.98, 0.12)
    neck = box(g, -0.13, 0.85, 0.13, 1.30, 0.03)
    sprite.shaded(g, smooth_union(body, neck, 0.22), colour, light, bevel=0.30, gloss=1.0)
    sprite.shaded(g, box(g, -0.18, 1.24, 0.18, 1.44, 0.05), accent(colour), light, bevel=0.12)
    label = box(g, -0.33, 0.30, 0.33, 0.66, 0.02)
    sprite.shaded(g, label, accent(colour), light, bevel=0.12, gloss=0.2)
    sprite.flat(g, circle(g, 0.0, 0.48, 0.12), colour)


def mug(sprite: Sprite, g: Grid, colour: Colour, light: Light) -> None:
    sprite.shaded(g, ring(g, 0.50, 0.46, 0.26, 0.085), colour, light, bevel=0.085, gloss=0.8)
    body = polygon(g, [(-0.40, 0.10), (-0.46, 0.92), (0.46, 0.92), (0.40, 0.10)], 0.09)
    sprite.shaded(g, body, colour, light, bevel=0.42, gloss=0.9)
    sprite.shaded(g, ellipse(g, 0, 0.95, 0.54, 0.15), mix(colour, CHALK, 0.15), light, bevel=0.1)
    sprite.flat(g, ellipse(g, 0, 0.95, 0.44, 0.105), (0.24, 0.13, 0.07))
    sprite.flat(g, circle(g, -0.04, 0.46, 0.17), accent(colour), 0.92)


def headphones(sprite: Sprite, g: Grid, colour: Colour, light: Light) -> None:
    band = ring(g, 0, 0.62, 0.62, 0.10)
    upper = -(g.y - 0.48)
    sprite.shaded(g, band.maximum(upper), colour, light, bevel=0.12, gloss=0.8)
    for side in (-1, 1):
        cushion = ellipse(g, side * 0.42, 0.36, 0.17, 0.32)
        sprite.shaded(g, cushion, (0.24, 0.24, 0.27), light, bevel=0.16, gloss=0.2)
        cup = ellipse(g, side * 0.63, 0.36, 0.22, 0.36)
        sprite.shaded(g, cup, colour, light, bevel=0.24, gloss=0.9)
        sprite.shaded(g, circle(g, side * 0.65, 0.36, 0.11), accent(colour), light, bevel=0.12)


def handbag(sprite: Sprite, g: Grid, colour: Colour, light: Light) -> None:
    handle = ellipse(g, 0, 0.72, 0.36, 0.46).abs() - 0.055
    sprite.shaded(g, handle.maximum(0.70 - g.y), mix(colour, DARK, 0.35), light, bevel=0.055)
    body = polygon(g, [(-0.72, 0.10), (-0.58, 0.70), (0.58, 0.70), (0.72, 0.10)], 0.10)
    sprite.shaded(g, body, colour, light, bevel=0.30, gloss=0.7)
    flap = polygon(g, [(-0.56, 0.74), (-0.46, 0.46), (0, 0.34), (0.46, 0.46), (0.56, 0.74)], 0.05)
    sprite.shaded(g, flap, mix(colour, DARK, 0.22), light, bevel=0.10, gloss=0.6)
    gold = (0.93, 0.74, 0.28)
    sprite.shaded(g, box(g, -0.11, 0.28, 0.11, 0.42, 0.04), gold, light, bevel=0.08, gloss=0.9)


Draw = Callable[[Sprite, Grid, Colour, Light], None]
# Drawing function and the scale that gives each product about the same weight in the frame.
PRODUCT_DRAWINGS: dict[str, tuple[Draw, float]] = {
    "sneaker": (sneaker, 0.335),
    "car": (car, 0.325),
    "bottle": (bottle, 0.39),
    "mug": (mug, 0.42),
    "headphones": (headphones, 0.40),
    "handbag": (handbag, 0.38),
}
