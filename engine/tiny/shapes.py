"""Signed-distance shapes and soft shading, the drawing kit of the scenes."""

from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

Colour = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Grid:
    """Coordinates (height, width) of the pixel centres; `pixel` is one pixel in their unit."""

    x: Tensor
    y: Tensor
    pixel: float

    def local(self, cx: float, cy: float, scale: float, flip: bool = False) -> "Grid":
        """Move the origin to (cx, cy), turn y upwards and make `scale` the unit."""
        x = (self.x - cx) / scale
        return Grid(-x if flip else x, (cy - self.y) / scale, self.pixel / scale)

    def cover(self, distance: Tensor, softness: float = 1.2) -> Tensor:
        """Turn a distance into anti-aliased coverage, `softness` pixels wide."""
        return (0.5 - distance / (self.pixel * softness)).clamp_(0, 1)


def circle(grid: Grid, x: float, y: float, radius: float) -> Tensor:
    return torch.hypot(grid.x - x, grid.y - y) - radius


def ellipse(grid: Grid, x: float, y: float, rx: float, ry: float) -> Tensor:
    """Approximate distance to an ellipse: exact on its edge, right in sign elsewhere."""
    return (torch.hypot((grid.x - x) / rx, (grid.y - y) / ry) - 1) * min(rx, ry)


def box(grid: Grid, left: float, bottom: float, right: float, top: float, r: float = 0) -> Tensor:
    """Axis-aligned box with corner radius r."""
    dx = (grid.x - (left + right) / 2).abs() - ((right - left) / 2 - r)
    dy = (grid.y - (bottom + top) / 2).abs() - ((top - bottom) / 2 - r)
    outside = torch.hypot(dx.clamp(min=0), dy.clamp(min=0))
    return outside + torch.maximum(dx, dy).clamp(max=0) - r


def segment(grid: Grid, start: tuple[float, float], end: tuple[float, float], r: float) -> Tensor:
    """Capsule of radius r."""
    (ax, ay), (bx, by) = start, end
    dx, dy = bx - ax, by - ay
    t = (((grid.x - ax) * dx + (grid.y - ay) * dy) / (dx * dx + dy * dy)).clamp_(0, 1)
    return torch.hypot(grid.x - ax - t * dx, grid.y - ay - t * dy) - r


def polygon(grid: Grid, points: list[tuple[float, float]], r: float = 0) -> Tensor:
    """Simple polygon grown by r, so that its corners are round."""
    best = torch.full_like(grid.x, 1e9)
    inside = torch.zeros_like(grid.x, dtype=torch.bool)
    for (ax, ay), (bx, by) in zip(points, points[1:] + points[:1], strict=True):
        dx, dy = bx - ax, by - ay
        px, py = grid.x - ax, grid.y - ay
        t = ((px * dx + py * dy) / (dx * dx + dy * dy)).clamp_(0, 1)
        best = torch.minimum(best, (px - t * dx).square_() + (py - t * dy).square_())
        if dy:
            crosses = (grid.y >= ay) != (grid.y >= by)
            inside ^= crosses & (px < py * (dx / dy))
    distance = best.sqrt_()
    return torch.where(inside, -distance, distance) - r


def ring(grid: Grid, x: float, y: float, radius: float, r: float) -> Tensor:
    return circle(grid, x, y, radius).abs() - r


def smooth_union(a: Tensor, b: Tensor, width: float) -> Tensor:
    """Blend two shapes over `width` (polynomial smooth minimum)."""
    h = ((width - (a - b).abs()) / width).clamp_(min=0)
    return torch.minimum(a, b) - h * h * (width / 4)


def solid(colour: Colour) -> Tensor:
    return torch.tensor(colour).view(3, 1, 1)


def mix(a: Colour, b: Colour, weight: float) -> Colour:
    return tuple(u + (v - u) * weight for u, v in zip(a, b, strict=True))  # type: ignore[return-value]


def paint(image: Tensor, cover: Tensor, colour: Colour | Tensor) -> None:
    """Lay a colour (3,) or (3, h, w) over an opaque image (3, h, w), in place."""
    target = colour if isinstance(colour, Tensor) else solid(colour)
    image += (target - image) * cover


def vertical(grid: Grid, stops: list[tuple[float, Colour]]) -> Tensor:
    """Smooth gradient over grid.y through (position, colour) stops, positions rising."""
    out = solid(stops[0][1]).expand(3, *grid.y.shape).clone()
    for (low, _), (high, colour) in pairwise(stops):
        t = ((grid.y - low) / (high - low)).clamp_(0, 1)
        out += (solid(colour) - out) * (t * t * (3 - 2 * t))
    return out


@dataclass(frozen=True, slots=True)
class Light:
    """Direction towards the light (x right, y up, z to the viewer), its colours and strength."""

    direction: tuple[float, float, float]
    key: Colour
    ambient: Colour
    rim: Colour


class Sprite:
    """A premultiplied RGBA layer (4, h, w) that is drawn part by part."""

    def __init__(self, rgba: Tensor) -> None:
        self.rgba = rgba

    def window(self, grid: Grid, x: float, y: float, reach: float) -> tuple["Sprite", Grid]:
        """The part within `reach` of (x, y), as views: drawing there costs less."""
        left, top = float(grid.x[0, 0]), float(grid.y[0, 0])
        rows = slice(max(0, int(y - reach - top)), max(1, int(y + reach - top)))
        cols = slice(max(0, int(x - reach - left)), max(1, int(x + reach - left)))
        part = Grid(grid.x[rows, cols], grid.y[rows, cols], grid.pixel)
        return Sprite(self.rgba[:, rows, cols]), part

    def add(self, cover: Tensor, colour: Tensor) -> None:
        """Lay colour (3, h, w) or (3, 1, 1) over what is there."""
        self.rgba *= 1 - cover
        self.rgba[:3] += colour * cover
        self.rgba[3] += cover

    def flat(self, grid: Grid, distance: Tensor, colour: Colour, opacity: float = 1.0) -> None:
        self.add(grid.cover(distance) * opacity, solid(colour))

    def shaded(
        self,
        grid: Grid,
        distance: Tensor,
        colour: Colour,
        light: Light,
        *,
        bevel: float = 0.2,
        gloss: float = 0.5,
    ) -> None:
        """Draw a shape as an inflated solid whose edge is rounded over `bevel` units."""
        self.add(grid.cover(distance), shade(grid, distance, colour, light, bevel, gloss))


def shade(
    grid: Grid, distance: Tensor, colour: Colour, light: Light, bevel: float, gloss: float
) -> Tensor:
    """Colours (3, h, w) of a solid lit by one lamp: diffuse, highlight and rim light."""
    slope = (1 + distance / bevel).clamp_(0, 1)
    # Rows run downwards and the light's y upwards; a mirrored grid does not mirror the lamp.
    down, right = torch.gradient(distance)
    length = torch.hypot(down, right).clamp_(min=1e-6)
    normal = torch.stack((right, -down)) * (slope / length)
    # A distance field has creases where two edges are equally near; blurring rounds them off.
    normal = F.avg_pool2d(normal, 5, stride=1, padding=2, count_include_pad=False)
    nx, ny = F.avg_pool2d(normal, 5, stride=1, padding=2, count_include_pad=False)
    nz = (1 - nx * nx - ny * ny).clamp_(min=0.02).sqrt_()
    lx, ly, lz = light.direction
    diffuse = (nx * lx + ny * ly + nz * lz).clamp_(min=0)
    half_z = (1 + lz) / 2
    highlight = (nx * lx * 0.6 + ny * ly * 0.6 + nz * half_z).clamp_(0, 1).pow_(18)
    rim = slope.pow(4) * (0.35 + 0.65 * ny.clamp(min=0)) * 0.35
    lit = solid(light.ambient) + solid(light.key) * diffuse
    out: Tensor = solid(colour) * lit
    out += solid(light.key) * (highlight * gloss * 0.5)
    out += solid(light.rim) * (rim * gloss)
    return out.clamp_(0, 1)
