"""Computes what each model needs in memory and writes it beside the models' rows.

`python -m bench.memory_needs`. The parts are made on torch's meta device, which allocates nothing,
so parameters are counted and not guessed. A forward of the transformer and a decode, at the model's
default settings and a batch of one, run there too; a dispatch mode counts the bytes of all tensors
alive at once. That leaves out what libraries allocate inside an operation and what the allocator
loses.
"""

from __future__ import annotations

import json
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import diffusers
import torch
import transformers
from torch.utils._python_dispatch import TorchDispatchMode

from bench.published_parts import MODELS
from engine.memory import NEEDS_FILE
from engine.registry import default_settings, list_models

# Models share VAEs.
_decoded: dict[Any, int] = {}


class LiveBytes(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch's own
    """Counts the bytes of all storages that operations made and nobody has let go.

    Those of the module's own weights, which views share, are not counted.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch's own
        self.live = 0
        self.peak = 0
        self._known: weakref.WeakSet[Any] = weakref.WeakSet()
        for tensor in [*module.parameters(), *module.buffers()]:
            self._known.add(tensor.untyped_storage())

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in torch.utils._pytree.tree_leaves(result):
            if isinstance(tensor, torch.Tensor) and tensor.device.type == "meta":
                self._count(tensor.untyped_storage())
        return result

    def _count(self, storage: Any) -> None:
        if storage in self._known:
            return
        self._known.add(storage)
        size = storage.nbytes()
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._let_go, size)

    def _let_go(self, size: int) -> None:
        self.live -= size


def compute(model_id: str) -> dict[str, Any]:
    """The figures of one model; None for an operation that the meta device cannot run."""
    model = MODELS[model_id]()
    settings = default_settings(model_id)
    parts, modules = [], {}
    for name, make in model.parts.items():
        with torch.device("meta"):
            module = make().eval()
        modules[name] = module.to(torch.float32 if name in model.float32 else torch.bfloat16)
        itemsize = 4 if name in model.float32 else 2
        counts = [_count(block) for block in _blocks(module)]
        parts.append(
            {
                "name": name,
                "num_parameters": _count(module),
                "largest_block": max(counts, default=0),
                "outside_blocks": _count(module) - sum(counts),
                "bytes_per_parameter": itemsize,
            }
        )
    transformer, vae = modules["transformer"], modules["vae"]
    inputs = {
        name: torch.empty(value, device="meta", dtype=torch.bfloat16)
        if isinstance(value, tuple)
        else value
        for name, value in model.denoise(settings, transformer).items()
    }
    shape = model.latents(settings)
    whole = tiled = _decode_bytes(vae, shape)
    side = getattr(vae, "tile_sample_min_height", None)
    if side is not None:
        latent_side = shape[-2] * side // settings.height
        # One tile's work, beside the tiles that are done, overlaps included, and their sum.
        pixels = settings.num_frames * settings.height * settings.width * 3
        tiled = _decode_bytes(vae, (*shape[:-2], latent_side, latent_side))
        tiled += 3 * pixels * vae.dtype.itemsize
    return {
        "parts": parts,
        "denoise_bytes": _peak(transformer, lambda: transformer(**inputs, return_dict=False)),
        "decode_bytes": whole,
        "decode_tile_bytes": min(whole, tiled),
    }


def _count(module: Any) -> int:
    return sum(each.numel() for each in module.parameters())


def _blocks(module: Any) -> Iterable[Any]:
    """The outermost lists of blocks, however deep they lie."""
    for child in module.children():
        if isinstance(child, torch.nn.ModuleList):
            yield from child
        else:
            yield from _blocks(child)


def _decode_bytes(vae: Any, shape: tuple[int, ...]) -> int:
    key = (type(vae), vae.dtype, tuple(vae.config.values()).__repr__(), shape)
    if key not in _decoded:
        latents = torch.empty(shape, device="meta", dtype=vae.dtype)
        peak = _peak(vae, lambda: vae.decode(latents, return_dict=False))
        assert peak is not None, "a decode runs on the meta device"
        _decoded[key] = peak
    return _decoded[key]


def _peak(module: torch.nn.Module, run: Callable[[], Any]) -> int | None:
    """None where the meta device lacks an operation, such as HiDream's count of its experts."""
    with torch.no_grad(), _attention_without_weights(), LiveBytes(module) as counter:
        try:
            run()
        except NotImplementedError as error:
            sys.stderr.write(f"  not computed: {type(error).__name__}: {str(error)[:200]}\n")
            return None
        peak: int = counter.peak
    return peak


@contextmanager
def _attention_without_weights() -> Iterator[None]:
    """Attention as GPUs compute it: the weights between tokens are never held all at once."""
    functional = torch.nn.functional
    before = functional.scaled_dot_product_attention

    def attend(query: Any, key: Any, value: Any, *_: Any, **__: Any) -> Any:
        return torch.empty_like(query)

    functional.scaled_dot_product_attention = attend
    try:
        yield
    finally:
        functional.scaled_dot_product_attention = before


def main() -> None:
    # Precision is set by hand here, which the library advises against for loading.
    diffusers.utils.logging.set_verbosity_error()
    needs = {}
    for spec in list_models():
        if spec.model_id in MODELS:
            print(spec.model_id, file=sys.stderr)
            needs[spec.model_id] = compute(spec.model_id)
    text = json.dumps(
        {
            "computed_with": {
                "diffusers": diffusers.__version__,
                "torch": torch.__version__.partition("+")[0],
                "transformers": transformers.__version__,
            },
            "models": needs,
        },
        indent=1,
    )
    NEEDS_FILE.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
