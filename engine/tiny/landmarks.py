"""Landmark silhouettes of the eight geographies, each big and unlike the others.

A landmark stands on y = 0 and is one unit high; its half width is given beside its drawing.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from engine.tiny.shapes import Colour, Grid, box, circle, mix, paint, polygon, segment

Tone = Callable[[Colour], Colour]  # applies haze and time of day to a surface colour


def golden_gate(image: Tensor, g: Grid, tone: Tone) -> None:
    steel = tone((0.80, 0.22, 0.12))
    paint(image, g.cover(box(g, -1.7, 0.20, 1.7, 0.28)), steel)
    sag = 0.34 + 0.62 * (g.x / 0.62).square()
    outer = 0.96 - (g.x.abs() - 0.62) * 1.05
    cable = torch.where(g.x.abs() < 0.62, sag, outer)
    paint(image, g.cover((g.y - cable).abs() * 0.62 - 0.028), steel)
    for x in (-0.62, 0.62):
        paint(image, g.cover(box(g, x - 0.10, 0, x + 0.10, 1.0, 0.02)), steel)
        for low in (0.36, 0.66):
            gap = box(g, x - 0.035, low, x + 0.035, low + 0.20)
            paint(image, g.cover(gap) * 0.75, mix(steel, (0.2, 0.1, 0.1), 0.5))


def empire_state(image: Tensor, g: Grid, tone: Tone) -> None:
    side, front = tone((0.36, 0.41, 0.52)), tone((0.58, 0.60, 0.66))
    for left, right, top in (
        (-0.74, -0.44, 0.50),
        (-0.50, -0.22, 0.36),
        (0.26, 0.52, 0.58),
        (0.46, 0.76, 0.40),
    ):
        paint(image, g.cover(box(g, left, 0, right, top)), side)
    for half, top in ((0.27, 0.46), (0.20, 0.68), (0.12, 0.80), (0.035, 1.0)):
        paint(image, g.cover(box(g, -half, 0, half, top)), front)
        paint(image, g.cover(box(g, half * 0.35, 0, half, top)) * 0.5, side)


def eiffel(image: Tensor, g: Grid, tone: Tone) -> None:
    iron = tone((0.44, 0.33, 0.26))
    rise = g.y.clamp(0, 1)
    half = 0.025 + 0.36 * (1 - rise).pow(2.6)
    tower = torch.maximum((g.x.abs() - half) * 0.8, torch.maximum(-g.y, g.y - 0.98))
    hole = circle(g, 0, 0.0, 0.19)
    window = polygon(g, [(-0.075, 0.27), (0, 0.46), (0.075, 0.27)])
    paint(image, g.cover(torch.maximum(tower, -torch.minimum(hole, window))), iron)
    for y, width in ((0.23, 0.27), (0.50, 0.13), (0.86, 0.05)):
        paint(image, g.cover(box(g, -width, y - 0.022, width, y + 0.022)), iron)


def big_ben(image: Tensor, g: Grid, tone: Tone) -> None:
    stone, shade = tone((0.78, 0.64, 0.42)), tone((0.52, 0.42, 0.30))
    paint(image, g.cover(box(g, 0.10, 0, 0.95, 0.30)), shade)
    for x in (0.32, 0.58, 0.84):
        paint(image, g.cover(polygon(g, [(x - 0.09, 0.28), (x, 0.44), (x + 0.09, 0.28)])), shade)
    paint(image, g.cover(box(g, -0.17, 0, 0.17, 0.56)), stone)
    paint(image, g.cover(box(g, 0.05, 0, 0.17, 0.56)) * 0.6, shade)
    paint(image, g.cover(box(g, -0.21, 0.54, 0.21, 0.80, 0.02)), stone)
    paint(image, g.cover(polygon(g, [(-0.20, 0.79), (0, 1.02), (0.20, 0.79)])), shade)
    paint(image, g.cover(circle(g, 0, 0.67, 0.135)), (1.0, 0.97, 0.84))
    for end in ((0.0, 0.76), (0.06, 0.64)):
        paint(image, g.cover(segment(g, (0, 0.67), end, 0.014)), (0.20, 0.17, 0.14))


def pagoda(image: Tensor, g: Grid, tone: Tone) -> None:
    wall, roof = tone((0.86, 0.24, 0.16)), tone((0.22, 0.20, 0.26))
    for level, half in enumerate((0.50, 0.41, 0.32, 0.23)):
        low = level * 0.22
        paint(image, g.cover(box(g, -half * 0.60, low, half * 0.60, low + 0.16)), wall)
        eave = [
            (-half, low + 0.155),
            (-half * 0.50, low + 0.225),
            (half * 0.50, low + 0.225),
            (half, low + 0.155),
            (half * 0.60, low + 0.135),
            (-half * 0.60, low + 0.135),
        ]
        paint(image, g.cover(polygon(g, eave, 0.012)), roof)
    paint(image, g.cover(box(g, -0.03, 0.86, 0.03, 1.06)), roof)


def pyramids(image: Tensor, g: Grid, tone: Tone) -> None:
    lit, dark = tone((0.95, 0.76, 0.42)), tone((0.56, 0.38, 0.20))
    for x, half, top in ((0.55, 0.52, 0.62), (-0.18, 0.80, 1.0)):
        edge = x + half * 0.28
        paint(image, g.cover(polygon(g, [(x - half, 0), (x, top), (x + half, 0)])), dark)
        paint(image, g.cover(polygon(g, [(x - half, 0), (x, top), (edge, 0)])), lit)


def opera_house(image: Tensor, g: Grid, tone: Tone) -> None:
    shell, shade = tone((0.99, 0.97, 0.92)), tone((0.62, 0.63, 0.70))
    for x, size, lean in (
        (0.72, 0.50, 0.5),
        (-0.72, 0.62, -0.35),
        (0.26, 0.76, 0.5),
        (-0.26, 1.0, 0.5),
    ):
        # A pointed arch is what two circles share; leaning makes it a sail.
        y = g.y / size
        sail = Grid((g.x - x) / size - lean * y, y, g.pixel / size)
        arch = torch.maximum(circle(sail, -0.62, 0.08, 1.10), circle(sail, 0.62, 0.08, 1.10))
        paint(image, sail.cover(torch.maximum(arch, -y)), shade)
        front = torch.maximum(arch, circle(sail, -0.78, 0.08, 1.10))
        paint(image, sail.cover(torch.maximum(front, -y)), shell)
    paint(image, g.cover(box(g, -1.25, -0.02, 1.25, 0.12, 0.02)), tone((0.60, 0.46, 0.40)))


def redeemer(image: Tensor, g: Grid, tone: Tone) -> None:
    stone = tone((0.93, 0.92, 0.90))
    hill = 0.50 * torch.exp(-((g.x / 0.62).square())) + 0.05 * torch.cos(g.x * 3)
    paint(image, g.cover((g.y - hill) * 0.7), tone((0.20, 0.36, 0.28)))
    paint(
        image,
        g.cover(polygon(g, [(-0.10, 0.48), (-0.055, 0.88), (0.055, 0.88), (0.10, 0.48)])),
        stone,
    )
    paint(
        image,
        g.cover(
            polygon(
                g,
                [
                    (-0.36, 0.80),
                    (-0.36, 0.86),
                    (0.36, 0.86),
                    (0.36, 0.80),
                    (0.07, 0.72),
                    (-0.07, 0.72),
                ],
            )
        ),
        stone,
    )
    paint(image, g.cover(circle(g, 0, 0.935, 0.062)), stone)


LandmarkDraw = Callable[[Tensor, Grid, Tone], None]
LANDMARK_DRAWINGS: dict[str, tuple[LandmarkDraw, float]] = {
    "san francisco": (golden_gate, 0.95),
    "new york": (empire_state, 0.70),
    "paris": (eiffel, 0.45),
    "london": (big_ben, 0.55),
    "tokyo": (pagoda, 0.50),
    "cairo": (pyramids, 1.0),
    "sydney": (opera_house, 1.05),
    "rio de janeiro": (redeemer, 0.60),
}


def landmark_scale(geography: str, height: int, width: int) -> float:
    """Height of the landmark in pixels: as tall as the frame allows for its width."""
    half_width = LANDMARK_DRAWINGS[geography][1]
    return min(0.50 * height, 0.44 * width / half_width, 0.60 * math.sqrt(height * width))
