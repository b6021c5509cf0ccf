"""The visible sign of each audience: a prop around the product."""

import torch
from torch import Tensor

from engine.tiny.backdrops import Stage
from engine.tiny.shapes import Grid, Light, Sprite, box, ellipse, mix, paint, ring, solid, vertical


def running_track(image: Tensor, g: Grid, stage: Stage) -> None:
    """Paint a red track with white lanes across the ground (3, h, w), in place."""
    top = stage.horizon + (stage.height - stage.horizon) * 0.36
    lane = vertical(
        g, [(top, stage.tone((0.62, 0.18, 0.13))), (stage.height, stage.tone((0.82, 0.28, 0.18)))]
    )
    paint(image, g.cover(top - g.y, 2.0), lane)
    depth = (g.y - top) / (stage.height - top)
    x = (g.x - stage.width / 2) / stage.unit
    for offset in (-1.05, -0.35, 0.35, 1.05):
        line = (x - offset * (0.45 + 0.55 * depth)).abs() - (0.012 + 0.014 * depth)
        paint(
            image,
            g.cover(torch.maximum(line * stage.unit, top - g.y), 1.5) * 0.9,
            stage.tone((0.97, 0.96, 0.94)),
        )


def balloons(sprite: Sprite, g: Grid, light: Light, side: float) -> None:
    """Three balloons in product units, beside the product on `side` (-1 or 1)."""
    for x, y, r, colour in (
        (0.98, 1.02, 0.21, (0.98, 0.78, 0.16)),
        (1.36, 0.98, 0.21, (0.16, 0.62, 0.92)),
        (1.18, 1.36, 0.23, (0.94, 0.24, 0.42)),
    ):
        cx = side * x
        string = box(g, cx - 0.012, y - 0.55, cx + 0.012, y)
        sprite.flat(g, string, (0.92, 0.90, 0.88), 0.6)
        sprite.shaded(g, ellipse(g, cx, y, r * 0.9, r * 1.08), colour, light, bevel=r, gloss=1.0)


def neon_ring(sprite: Sprite, g: Grid, height: float) -> None:
    """A glowing ring around the product, magenta below and cyan above."""
    centre, radius = height * 0.5, 1.0
    distance = ring(g, 0, centre, radius, 0.045)
    t = ((g.y - centre) / radius * 0.5 + 0.5).clamp_(0, 1)
    colour = solid((1.0, 0.10, 0.72)) * (1 - t) + solid((0.10, 0.92, 1.0)) * t
    halo = torch.exp(-distance.clamp(min=0) / 0.13) * 0.75
    above_ground = g.cover(-0.02 - g.y, 6.0)
    sprite.add(halo * above_ground, colour)
    core = g.cover(distance, 1.5) * above_ground
    sprite.add(core, colour * 0.35 + 0.65)


def podium(sprite: Sprite, g: Grid, light: Light) -> None:
    """A black cylinder with a gold edge; its top is y = 0."""
    side = box(g, -1.12, -0.36, 1.12, 0.0, 0.02)
    foot = ellipse(g, 0, -0.36, 1.12, 0.10)
    black = (0.10, 0.10, 0.13)
    sprite.shaded(g, torch.minimum(side, foot), black, light, bevel=0.5, gloss=0.8)
    gold = (0.95, 0.74, 0.30)
    sprite.shaded(g, ellipse(g, 0, -0.03, 1.15, 0.145), gold, light, bevel=0.05, gloss=0.9)
    sprite.shaded(g, ellipse(g, 0, 0.0, 1.10, 0.125), (0.18, 0.18, 0.22), light, bevel=0.1)


def leaves(sprite: Sprite, g: Grid, light: Light, reach: float) -> None:
    """Big leaves that grow in from both sides, `reach` product units from the middle."""
    for side in (-1.0, 1.0):
        for x, y, lean, size, shade_of in (
            (0.10, -0.20, 0.95, 0.95, 0.25),
            (0.02, -0.12, 0.42, 1.10, 0.0),
            (0.20, -0.26, 1.5, 0.80, 0.12),
        ):
            cx, cy = side * (reach + x), y
            dx, dy = -side * torch.sin(torch.tensor(lean)), torch.cos(torch.tensor(lean))
            along = (g.x - cx) * dx + (g.y - cy) * dy
            across = (g.x - cx) * dy - (g.y - cy) * dx
            middle = along / size - 0.5
            width = (0.20 * size * (1 - (middle * 2).square())).clamp(min=0)
            distance = torch.maximum(across.abs() - width, (middle.abs() - 0.5) * size) * 0.8
            green = mix((0.16, 0.56, 0.20), (0.04, 0.26, 0.12), shade_of * 2)
            sprite.shaded(g, distance, green, light, bevel=0.16, gloss=0.5)
