"""The scene generator: structured attributes in, one short advertising clip out.

A scene is a backdrop with a landmark, an audience's prop and one product. The backdrop is painted
once and moved with a parallax that grows towards the viewer; the product and its shadow are
sprites. The same attributes, size and seed always give the same frames.
"""

import math
from dataclasses import dataclass, fields

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from engine.tiny import audiences, vocabulary
from engine.tiny.backdrops import Stage, backdrop
from engine.tiny.lighting import TIMES_OF_DAY
from engine.tiny.products import COLOUR_VALUES, PRODUCT_DRAWINGS
from engine.tiny.shapes import Grid, Sprite, ellipse

MARGIN = 24  # pixels painted around the frame, so that the camera can move
PROP_SCALE = 0.335  # unit of the props in shorter frame sides
NO_SIGN_SHARE = 0.12  # share of the scenes without a landmark, and without an audience's sign


@dataclass(frozen=True, kw_only=True, slots=True)
class Scene:
    """One value for each attribute; None is allowed for geography and audience only."""

    product: str
    colour: str
    backdrop: str
    time: str
    geography: str | None
    audience: str | None
    motion: str

    def __post_init__(self) -> None:
        for attribute, value in self.attributes().items():
            if value is None and attribute in ("geography", "audience"):
                continue
            if value not in vocabulary.ATTRIBUTES[attribute]:
                known = ", ".join(vocabulary.values(attribute))
                raise ValueError(f"{attribute} {value!r} is not one of: {known}")

    def attributes(self) -> dict[str, str | None]:
        return {field.name: getattr(self, field.name) for field in fields(self)}


def sample_scene(rng: np.random.Generator) -> Scene:
    """Draw every attribute uniformly; geography and audience are sometimes left out."""
    chosen: dict[str, str | None] = {
        name: str(rng.choice(vocabulary.values(name))) for name in vocabulary.ATTRIBUTES
    }
    for name in ("geography", "audience"):
        if rng.random() < NO_SIGN_SHARE:
            chosen[name] = None
    return Scene(**chosen)  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Path:
    """Movement over the clip, one entry per frame; pixels, and scale factors."""

    shift: Tensor
    zoom: Tensor
    lift: Tensor


def movement(motion: str, num_frames: int, unit: int, strength: float) -> Path:
    t = torch.linspace(0, 1, num_frames) if num_frames > 1 else torch.zeros(1)
    smooth = t * t * (3 - 2 * t) * 0.4 + t * 0.6
    zero = torch.zeros(num_frames)
    shift, zoom, lift = zero, zero + 1, zero
    if motion in ("pan left", "pan right"):
        sign = 1 if motion == "pan left" else -1
        shift = (smooth - 0.5) * (sign * 0.24 * unit * strength)
    elif motion in ("push in", "pull back"):
        sign = 1 if motion == "push in" else -1
        zoom = torch.exp((smooth - 0.5) * (sign * 0.36 * strength))
    elif motion == "jump":
        lift = torch.sin(t * math.pi).square() * (0.24 * unit * strength)
    elif motion == "float":
        lift = t * t * (3 - 2 * t) * (0.24 * unit * strength)
    return Path(shift, zoom, lift)


def _grid(height: int, width: int) -> Grid:
    y = torch.arange(-MARGIN, height + MARGIN, dtype=torch.float32) + 0.5
    x = torch.arange(-MARGIN, width + MARGIN, dtype=torch.float32) + 0.5
    yy, xx = torch.meshgrid(y, x, indexing="ij")
    return Grid(xx, yy, 1.0)


def _warp(layer: Tensor, source_x: Tensor, source_y: Tensor, size: tuple[int, int]) -> Tensor:
    """Sample layer (C, h, w) at frame coordinates (F, H, W) or smaller, broadcast; (F, C, H, W)."""
    height, width = size
    frames = source_x.shape[0]
    gx = (source_x + MARGIN) * (2 / (width + 2 * MARGIN)) - 1
    gy = (source_y + MARGIN) * (2 / (height + 2 * MARGIN)) - 1
    grid = torch.stack((gx.expand(frames, height, width), gy.expand(frames, height, width)), dim=-1)
    source = layer.expand(frames, *layer.shape)
    return F.grid_sample(source, grid, padding_mode="border", align_corners=False)


@dataclass(frozen=True, slots=True)
class _Layers:
    background: Tensor  # (3, h, w)
    props: Tensor  # (4, h, w), shadow included
    product: Tensor  # (4, h, w)
    foot_y: float


def _paint_layers(scene: Scene, height: int, width: int, rng: np.random.Generator) -> _Layers:
    g = _grid(height, width)
    unit = min(height, width)
    side = 1 if rng.random() < 0.5 else -1
    reach = max(0.0, (width - 0.9 * unit) / width)
    stage = Stage(
        height=height,
        width=width,
        horizon=height * rng.uniform(0.57, 0.61),
        landmark_x=width * (0.5 + side * (0.05 + 0.36 * reach + rng.uniform(-0.02, 0.02))),
        time=TIMES_OF_DAY[scene.time],
        is_night=scene.time == "night",
        rng=rng,
    )
    background = backdrop(g, stage, scene.backdrop, scene.geography)
    if scene.audience == "runners":
        audiences.running_track(background, g, stage)
    draw, weight = PRODUCT_DRAWINGS[scene.product]
    scale = unit * weight * rng.uniform(0.94, 1.06)
    x = width * 0.5 - side * (0.06 * reach * width) + unit * rng.uniform(-0.03, 0.03)
    foot_y = height * rng.uniform(0.86, 0.89)
    if scene.audience == "professionals":
        foot_y -= 0.05 * unit
    light = stage.time.light
    props = Sprite(torch.zeros(4, *g.x.shape))
    near, near_grid = props.window(g, x, foot_y - 0.3 * scale, 1.75 * scale)
    near_local = near_grid.local(x, foot_y, scale)
    prop_unit = unit * PROP_SCALE
    if scene.audience == "gamers":
        audiences.neon_ring(near, near_local, 0.95)
    elif scene.audience == "families":
        at = x - side * 1.18 * prop_unit
        part, grid = props.window(g, at, foot_y - prop_unit, 0.8 * prop_unit)
        audiences.balloons(part, grid.local(x, foot_y, prop_unit), light, -side)
    elif scene.audience == "professionals":
        audiences.podium(near, near_local, light)
    elif scene.audience == "nature lovers":
        middle = g.local(width / 2, foot_y, prop_unit)
        audiences.leaves(props, middle, light, width / 2 / prop_unit)
    shadow = ellipse(near_local, 0.04, 0.0, 1.05, 0.11)
    near.add(torch.exp(-(shadow + 0.05).clamp(min=0) / 0.06) * 0.42, torch.zeros(3, 1, 1))
    product = Sprite(torch.zeros(4, *g.x.shape))
    part, grid = product.window(g, x, foot_y - 0.6 * scale, 1.25 * scale)
    facing = grid.local(x, foot_y, scale, flip=bool(rng.random() < 0.5))
    draw(part, facing, COLOUR_VALUES[scene.colour], light)
    return _Layers(background, props.rgba, product.rgba, foot_y)


def render(
    scene: Scene, *, height: int, width: int, seed: int, num_frames: int = vocabulary.NUM_FRAMES
) -> Tensor:
    """Render a clip as uint8 (num_frames, height, width, 3)."""
    layers, path = _prepare(scene, height, width, seed, num_frames)
    frames = _compose(layers, path, (height, width))
    return frames.expand(num_frames, -1, -1, -1).contiguous()


def product_cover(
    scene: Scene, *, height: int, width: int, seed: int, num_frames: int = vocabulary.NUM_FRAMES
) -> Tensor:
    """How much of each pixel of `render`'s clip is the product: (num_frames, H, W), 0 to 1."""
    layers, path = _prepare(scene, height, width, seed, num_frames)
    cover = _warp_near(layers.product[3:], path, (height, width), lifted=True)[:, 0]
    return cover.expand(num_frames, -1, -1)


def _prepare(
    scene: Scene, height: int, width: int, seed: int, num_frames: int
) -> tuple[_Layers, Path]:
    """The painted layers and how they move; a still scene has one frame."""
    rng = np.random.default_rng(seed)
    strength = rng.uniform(0.9, 1.1)
    layers = _paint_layers(scene, height, width, rng)
    path = movement(scene.motion, num_frames, min(height, width), strength)
    if scene.motion == "still":
        path = Path(path.shift[:1], path.zoom[:1], path.lift[:1])
    return layers, path


def _warp_near(layer: Tensor, path: Path, size: tuple[int, int], *, lifted: bool) -> Tensor:
    """Move a layer at the product's distance; `lifted` ones leave the ground as well."""
    height, width = size
    y = (torch.arange(height, dtype=torch.float32) + 0.5).view(1, height, 1)
    x = (torch.arange(width, dtype=torch.float32) + 0.5).view(1, 1, width)
    shift, zoom, lift = (p.view(-1, 1, 1) for p in (path.shift, path.zoom, path.lift))
    cx, cy = width / 2, height * 0.6
    rise = lift if lifted else 0.0
    return _warp(layer, (x - cx) / zoom + cx - shift, (y - cy) / zoom + cy + rise, size)


def _compose(layers: _Layers, path: Path, size: tuple[int, int]) -> Tensor:
    height, width = size
    y = (torch.arange(height, dtype=torch.float32) + 0.5).view(1, height, 1)
    x = (torch.arange(width, dtype=torch.float32) + 0.5).view(1, 1, width)
    shift, zoom = (p.view(-1, 1, 1) for p in (path.shift, path.zoom))
    cx, cy = width / 2, height * 0.6
    # Parallax: far rows follow the camera less than the rows near the product.
    near = ((y - height * 0.58) / (layers.foot_y - height * 0.58)).clamp(0, 1)
    follow = 0.45 + 0.55 * near
    far_zoom = 1 + (zoom - 1) * follow
    frame = _warp(
        layers.background, (x - cx) / far_zoom + cx - shift * follow, (y - cy) / far_zoom + cy, size
    )
    props_layer = layers.props
    if not path.lift.any():
        alpha = layers.product[3:]
        props_layer = props_layer * (1 - alpha) + layers.product
    props = _warp_near(props_layer, path, size, lifted=False)
    frame = frame * (1 - props[:, 3:]) + props[:, :3]
    if path.lift.any():
        product = _warp_near(layers.product, path, size, lifted=True)
        frame = frame * (1 - product[:, 3:]) + product[:, :3]
    vignette = 1 - 0.22 * (((x - cx) / width).square() + ((y - height / 2) / height).square())
    frame = frame * vignette
    return (frame.clamp_(0, 1) * 255).add_(0.5).to(torch.uint8).permute(0, 2, 3, 1).contiguous()
