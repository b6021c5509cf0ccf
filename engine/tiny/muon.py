"""Muon: momentum whose matrix updates are orthogonalised, batched over equal shapes.

Method: Jordan et al., "Muon: An optimizer for hidden layers in neural networks" (2024), with the
update scaled to AdamW's size as in Liu et al., "Muon is scalable for LLM training" (2025).
"""

from collections import defaultdict
from collections.abc import Iterable

import torch
from torch import Tensor, nn

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of the quintic Newton-Schulz iteration


def orthogonalise(batch: Tensor, steps: int = 5) -> Tensor:
    """Nearest semi-orthogonal matrices, roughly, of a batch (N, rows, columns)."""
    a, b, c = COEFFICIENTS
    x = batch.bfloat16()
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / (x.flatten(1).norm(dim=1).view(-1, 1, 1) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    found: Tensor = x.mT if tall else x
    return found.to(batch.dtype)


class Muon(torch.optim.Optimizer):
    """Muon over tensors of two or more dimensions; more than two are flattened to (out, rest)."""

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        *,
        lr: float,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            by_shape: dict[tuple[int, int], list[nn.Parameter]] = defaultdict(list)
            for param in group["params"]:
                if param.grad is not None:
                    by_shape[(param.shape[0], param[0].numel())].append(param)
            for shape, params in by_shape.items():
                self._update(group, shape, params)

    def _update(
        self, group: dict[str, float], shape: tuple[int, int], params: list[nn.Parameter]
    ) -> None:
        updates = []
        for param in params:
            gradient = param.grad
            assert gradient is not None
            buffer = self.state[param].setdefault("momentum", torch.zeros_like(param))
            buffer.lerp_(gradient, 1 - group["momentum"])
            updates.append(gradient.lerp(buffer, group["momentum"]).reshape(shape))
        stacked = orthogonalise(torch.stack(updates)) * (0.2 * max(shape) ** 0.5)
        for param, update in zip(params, stacked, strict=True):
            param.mul_(1 - group["lr"] * group["weight_decay"])
            param.add_(update.view_as(param), alpha=-group["lr"])
