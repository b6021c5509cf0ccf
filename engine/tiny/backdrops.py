"""Sky, scenery and ground of the seven backdrops, painted once per clip."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from engine.tiny.landmarks import LANDMARK_DRAWINGS, landmark_scale
from engine.tiny.lighting import TimeOfDay
from engine.tiny.shapes import (
    Colour,
    Grid,
    box,
    circle,
    mix,
    paint,
    polygon,
    vertical,
)


@dataclass(frozen=True, slots=True)
class Stage:
    """Where things stand in one clip: frame size in pixels and the chosen layout."""

    height: int
    width: int
    horizon: float  # row of the horizon in pixels
    landmark_x: float  # column of the landmark's axis in pixels
    time: TimeOfDay
    is_night: bool
    rng: np.random.Generator

    @property
    def unit(self) -> int:
        return min(self.height, self.width)

    def tone(self, colour: Colour) -> Colour:
        """Colour of scenery in this light."""
        e = self.time.exposure
        return (colour[0] * e[0], colour[1] * e[1], colour[2] * e[2])


def sky(g: Grid, stage: Stage) -> Tensor:
    """Gradient sky with a sun or moon and soft clouds (3, h, w)."""
    zenith, middle, horizon = stage.time.sky
    image = vertical(
        g, [(0, zenith), (stage.horizon * 0.55, middle), (stage.horizon * 1.0, horizon)]
    )
    rng, unit = stage.rng, stage.unit
    if stage.time.sun is not None:
        fx, fy = stage.time.sun
        # The sun stands on the far side of the landmark, so both can be seen.
        fx = 1 - fx if stage.landmark_x > stage.width / 2 and fx > 0.5 else fx
        fx = 1 - fx if stage.landmark_x < stage.width / 2 and fx < 0.5 else fx
        x = stage.width * (fx + rng.uniform(-0.03, 0.03))
        y = stage.horizon * (fy + rng.uniform(-0.04, 0.04))
        distance = circle(g, x, y, stage.time.sun_radius * unit)
        halo = torch.exp(-distance.clamp(min=0) / (0.22 * unit)) * stage.time.glow
        paint(image, halo, stage.time.sun_colour)
        paint(image, g.cover(distance, 2.5), stage.time.sun_colour)
    cloud = mix(horizon, (1.0, 1.0, 1.0), 0.0 if stage.is_night else 0.55)
    for _ in range(3):
        x, y = rng.uniform(0, stage.width), stage.horizon * rng.uniform(0.08, 0.5)
        rx, ry = unit * rng.uniform(0.25, 0.5), unit * rng.uniform(0.04, 0.08)
        puff = torch.exp(-(((g.x - x) / rx).square() + ((g.y - y) / ry).square()))
        paint(image, puff * 0.5, cloud)
    return image


def ridge(g: Grid, stage: Stage, base: float, swing: float, period: float) -> Tensor:
    """Distance below a soft hilly line that starts `base` pixels above the horizon."""
    phase = stage.rng.uniform(0, 2 * math.pi, 2)
    line = torch.sin(g.x * (2 * math.pi / period) + phase[0])
    line = line + 0.5 * torch.sin(g.x * (2 * math.pi / period * 1.9) + phase[1])
    return (stage.horizon - base - line * swing) - g.y


def ground(image: Tensor, g: Grid, stage: Stage, far: Colour, near: Colour) -> None:
    """Gradient floor from the horizon to the lower edge."""
    floor = vertical(g, [(stage.horizon, stage.tone(far)), (stage.height, stage.tone(near))])
    paint(image, g.cover(stage.horizon - g.y, 2.0), floor)


def beach(image: Tensor, g: Grid, stage: Stage) -> None:
    unit, h = stage.unit, stage.height
    shore = stage.horizon + (h - stage.horizon) * 0.42
    deep, shallow = stage.tone((0.04, 0.36, 0.56)), stage.tone((0.22, 0.72, 0.74))
    water = vertical(g, [(stage.horizon, mix(deep, stage.time.sky[2], 0.3)), (shore, shallow)])
    paint(image, g.cover(stage.horizon - g.y, 2.0), water)
    phase = stage.rng.uniform(0, 6.28)
    edge = shore + torch.sin(g.x * (4.5 / stage.width) + phase) * unit * 0.035
    sand = vertical(
        g, [(shore, stage.tone((0.80, 0.66, 0.46))), (h, stage.tone((0.96, 0.84, 0.62)))]
    )
    paint(image, g.cover(edge - g.y, 2.0), sand)
    foam = torch.exp(-((g.y - edge) / (0.018 * unit)).square())
    paint(image, foam * 0.85, stage.tone((1.0, 1.0, 1.0)))


def desert(image: Tensor, g: Grid, stage: Stage) -> None:
    unit = stage.unit
    sand = [(0.86, 0.56, 0.30), (0.92, 0.62, 0.32), (0.96, 0.70, 0.40)]
    ground(image, g, stage, sand[0], sand[2])
    for i, (base, swing) in enumerate(((0.01, 0.02), (-0.12, 0.03), (-0.26, 0.03))):
        line = ridge(g, stage, base * unit, swing * unit, stage.width * (0.9 + 0.25 * i))
        crest = stage.tone(mix(sand[i], (1.0, 0.86, 0.6), 0.35))
        body = vertical(
            g,
            [
                (stage.horizon - base * unit, crest),
                (
                    stage.horizon + (0.16 - base) * unit,
                    stage.tone(mix(sand[i], (0.5, 0.25, 0.15), 0.25)),
                ),
            ],
        )
        paint(image, g.cover(line, 2.0), body)


def forest(image: Tensor, g: Grid, stage: Stage) -> None:
    unit, rng = stage.unit, stage.rng
    ground(image, g, stage, (0.16, 0.34, 0.14), (0.36, 0.52, 0.20))
    hedge = ridge(g, stage, 0.07 * unit, 0.018 * unit, stage.width * 0.4)
    band = torch.maximum(hedge, g.y - stage.horizon - 0.03 * unit)
    paint(image, g.cover(band, 3.0), stage.tone((0.12, 0.34, 0.18)))
    leaf = [stage.tone((0.05, 0.24, 0.13)), stage.tone((0.08, 0.32, 0.15))]
    for side in (0.0, 1.0):
        for i, inset in enumerate((0.17, 0.02)):
            x = stage.width * (side + (inset if side == 0 else -inset)) + rng.uniform(-3, 3)
            size = unit * (0.50 + 0.20 * i)
            foot = stage.horizon + unit * (0.04 + 0.10 * i)
            tree = g.local(x, foot, size)
            paint(
                image,
                tree.cover(box(tree, -0.04, -0.1, 0.04, 0.2), 2.0),
                stage.tone((0.22, 0.13, 0.08)),
            )
            for low, half in ((0.06, 0.26), (0.34, 0.21), (0.60, 0.15)):
                cone = polygon(tree, [(-half, low), (0, low + 0.46), (half, low)], 0.02)
                paint(image, tree.cover(cone, 2.0), leaf[i])


def street(image: Tensor, g: Grid, stage: Stage) -> None:
    unit, rng, w = stage.unit, stage.rng, stage.width
    ground(image, g, stage, (0.34, 0.34, 0.38), (0.22, 0.22, 0.26))
    lamp = (1.0, 0.82, 0.46) if stage.is_night else stage.tone((0.86, 0.92, 0.98))
    walls = [(0.56, 0.36, 0.30), (0.70, 0.62, 0.52), (0.44, 0.46, 0.52), (0.62, 0.44, 0.36)]
    order = rng.permutation(4)
    for side in (-1, 1):
        for i, (inner, rise) in enumerate(((0.20, 0.22), (0.33, 0.40))):
            x = w * (0.5 + side * (inner + 0.06))
            left, right = (x, w * 1.3) if side > 0 else (-w * 0.3, x)
            top = stage.horizon - rise * unit - rng.uniform(0, 0.05) * unit
            wall = box(g, left, top, right, stage.horizon + 0.05 * unit * (i + 1))
            paint(image, g.cover(wall, 2.0), stage.tone(walls[order[i + (side > 0)]]))
            # Two rows of big panes: anything finer would be lost in the latents.
            for row in range(1 + i):
                y = top + unit * (0.05 + 0.13 * row)
                px = x + side * unit * 0.075
                pane = box(g, px - 0.035 * unit, y, px + 0.035 * unit, y + 0.075 * unit)
                paint(image, g.cover(pane, 2.0) * 0.9, lamp)
    centre = (g.x - w / 2).abs() - (g.y - stage.horizon) * 0.05
    walkway = (g.x - w / 2).abs() - (0.26 * w + (g.y - stage.horizon) * 0.75)
    below = g.cover(stage.horizon + 0.05 * unit - g.y, 2.0)
    paint(image, (1 - g.cover(walkway, 3.0)) * below, stage.tone((0.60, 0.58, 0.57)))
    paint(image, g.cover(centre, 2.0) * below * 0.8, stage.tone((0.95, 0.90, 0.70)))
    if stage.is_night:
        glow = torch.exp(-((g.y - stage.horizon) / (0.10 * unit)).square())
        paint(image, glow * 0.30, (1.0, 0.66, 0.30))


def mountains(image: Tensor, g: Grid, stage: Stage) -> None:
    unit, rng = stage.unit, stage.rng
    rock, snow = stage.tone((0.34, 0.40, 0.52)), stage.tone((0.97, 0.98, 1.0))
    rock = mix(rock, stage.time.sky[2], 0.22)
    for fx, rise, half in ((0.14, 0.30, 0.40), (0.86, 0.34, 0.42), (0.50, 0.20, 0.40)):
        x = stage.width * fx + rng.uniform(-0.05, 0.05) * unit
        peak = g.local(x, stage.horizon, unit)
        paint(image, peak.cover(polygon(peak, [(-half, 0), (0, rise), (half, 0)]), 2.0), rock)
        cap = [
            (-half * 0.40, rise * 0.60),
            (0, rise),
            (half * 0.40, rise * 0.60),
            (half * 0.13, rise * 0.70),
            (-half * 0.10, rise * 0.55),
        ]
        paint(image, peak.cover(polygon(peak, cap), 2.0), snow)
    ground(image, g, stage, (0.36, 0.56, 0.34), (0.50, 0.66, 0.26))
    hill = ridge(g, stage, 0.02 * unit, 0.02 * unit, stage.width * 0.8)
    band = torch.maximum(hill, g.y - stage.horizon - 0.05 * unit)
    paint(image, g.cover(band, 3.0), stage.tone((0.24, 0.44, 0.30)))


def snowfield(image: Tensor, g: Grid, stage: Stage) -> None:
    unit = stage.unit
    white, blue = stage.tone((0.98, 0.99, 1.0)), stage.tone((0.72, 0.82, 0.95))
    ground(image, g, stage, (0.86, 0.91, 0.98), (0.97, 0.98, 1.0))
    for base, swing in ((0.03, 0.02), (-0.12, 0.025)):
        line = ridge(g, stage, base * unit, swing * unit, stage.width * 0.9)
        drift = vertical(
            g, [(stage.horizon - base * unit, white), (stage.horizon + (0.15 - base) * unit, blue)]
        )
        paint(image, g.cover(line, 2.0), drift)
    pine = stage.tone((0.16, 0.32, 0.32))
    for fx in (0.06, 0.95):
        tree = g.local(
            stage.width * fx + stage.rng.uniform(-4, 4), stage.horizon + 0.06 * unit, unit * 0.42
        )
        for low, half in ((0.05, 0.26), (0.36, 0.20), (0.64, 0.13)):
            cone = polygon(tree, [(-half, low), (0, low + 0.42), (half, low)], 0.02)
            paint(image, tree.cover(cone, 2.0), pine)
            cap = polygon(
                tree, [(-half * 0.5, low + 0.20), (0, low + 0.42), (half * 0.5, low + 0.20)], 0.02
            )
            paint(image, tree.cover(cap, 2.0), white)


def studio(image: Tensor, g: Grid, stage: Stage) -> None:
    """A loft: what was painted so far stays visible through one wide arched window."""
    unit, w, h = stage.unit, stage.width, stage.height
    night = 0.55 if stage.is_night else 0.0
    warm = mix(stage.time.exposure, (1.0, 1.0, 1.0), 0.5)

    def room(c: Colour) -> Colour:
        lit = (c[0] * warm[0], c[1] * warm[1], c[2] * warm[2])
        return mix(lit, (0.16, 0.14, 0.20), night)

    sill = stage.horizon + 0.02 * unit
    half = 0.40 * w
    top = max(stage.horizon - 0.60 * unit - 0.35 * (stage.horizon - 0.60 * unit), 0.05 * h)
    arch = box(g, w / 2 - half, top, w / 2 + half, sill + 0.30 * unit, min(half, 0.24 * unit))
    opening = torch.maximum(arch, g.y - sill)
    wall = vertical(g, [(0, room((0.80, 0.74, 0.70))), (sill, room((0.90, 0.85, 0.80)))])
    frame = g.cover(opening - 0.035 * unit, 2.0)
    outside = image.clone()
    image.copy_(wall)
    paint(image, frame, room((0.99, 0.98, 0.96)))
    image += (outside - image) * g.cover(opening, 2.0)
    floor_top = stage.horizon + 0.10 * unit
    floor = vertical(g, [(floor_top, room((0.52, 0.34, 0.22))), (h, room((0.70, 0.48, 0.32)))])
    paint(image, g.cover(floor_top - g.y, 2.0), floor)
    shine = torch.exp(
        -(((g.x - w / 2) / (0.32 * w)).square() + ((g.y - floor_top) / (0.22 * unit)).square())
    )
    paint(image, shine * g.cover(floor_top - g.y, 2.0) * 0.35, stage.time.sky[2])


Scenery = Callable[[Tensor, Grid, Stage], None]
SCENERY: dict[str, Scenery] = {
    "studio": studio,
    "beach": beach,
    "desert": desert,
    "forest": forest,
    "street": street,
    "mountains": mountains,
    "snow": snowfield,
}
# Scenery that stands behind the landmark; all other scenery is laid in front of its foot.
BEHIND_LANDMARK = frozenset({"mountains"})


def landmark(image: Tensor, g: Grid, stage: Stage, geography: str) -> None:
    """Paint the landmark on the horizon, hazed, and lit from below at night."""
    draw, _ = LANDMARK_DRAWINGS[geography]
    scale = landmark_scale(geography, stage.height, stage.width)
    night_glow = (1.0, 0.78, 0.50)

    def tone(colour: Colour) -> Colour:
        if stage.is_night:
            return mix(stage.tone(colour), mix(colour, night_glow, 0.25), 0.70)
        return mix(stage.tone(colour), stage.time.sky[2], stage.time.haze)

    foot = stage.horizon + 0.02 * stage.unit
    draw(
        image, g.local(stage.landmark_x, foot, scale, flip=stage.landmark_x > stage.width / 2), tone
    )


def backdrop(g: Grid, stage: Stage, name: str, geography: str | None) -> Tensor:
    """Paint everything that stands behind the product (3, h, w)."""
    image = sky(g, stage)
    if name in BEHIND_LANDMARK:
        SCENERY[name](image, g, stage)
    if geography is not None:
        landmark(image, g, stage, geography)
    if name not in BEHIND_LANDMARK:
        SCENERY[name](image, g, stage)
    return image
