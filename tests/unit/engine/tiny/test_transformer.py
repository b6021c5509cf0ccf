"""The transformer's training pass equals the stock model as the pipeline calls it."""

import torch
from diffusers import WanTransformer3DModel
from torch import nn

from engine.tiny.muon import Muon, orthogonalise
from engine.tiny.transformer import (
    TRANSFORMER_CONFIG,
    TrainingPass,
    build_transformer,
    text_inputs,
)


def trained_looking() -> WanTransformer3DModel:
    """Two layers whose zero weights are filled, so that every path matters."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = build_transformer({**TRANSFORMER_CONFIG, "num_layers": 2})
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.03 * torch.randn_like(parameter)
    return model


@torch.no_grad()
def test_the_training_pass_equals_the_stock_model_with_padding_and_a_given_first_frame() -> None:
    model = trained_looking()
    generator = torch.Generator().manual_seed(1)
    latents = torch.randn(2, 48, 3, 4, 8, generator=generator)
    words = [torch.randn(n, 192, generator=generator) for n in (7, 12)]
    padded = torch.zeros(2, 64, 192)
    for row, embedding in zip(padded, words, strict=True):
        row[: len(embedding)] = embedding
    # One clip has a clean first frame, the other is noisy all over.
    times = torch.tensor([[0.0, 500.0], [300.0, 300.0]])
    per_token = torch.cat((times[:, :1].expand(2, 8), times[:, 1:].expand(2, 16)), dim=1)
    stock = model(latents, per_token, padded, return_dict=False)[0]
    fast = TrainingPass(model, compiled=False)(latents, times, *text_inputs(words, [57, 52]))
    assert stock.abs().mean() > 0.01
    assert torch.allclose(stock, fast, atol=1e-4)


@torch.no_grad()
def test_a_new_transformer_predicts_nothing_yet() -> None:
    model = build_transformer({**TRANSFORMER_CONFIG, "num_layers": 1})
    out = model(
        torch.randn(1, 48, 1, 4, 4),
        torch.full((1, 4), 10.0),
        torch.zeros(1, 4, 192),
        return_dict=False,
    )[0]
    assert torch.equal(out, torch.zeros_like(out))


def test_orthogonalised_updates_have_singular_values_near_one() -> None:
    batch = torch.randn(3, 16, 40, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(orthogonalise(batch).float())
    assert float(values.min()) > 0.5
    assert float(values.max()) < 1.5


def test_muon_fits_a_linear_layer() -> None:
    torch.manual_seed(0)
    x = torch.randn(64, 8)
    target = x @ torch.randn(8, 4)
    layer = nn.Linear(8, 4, bias=False)
    optimizer = Muon(layer.parameters(), lr=0.1)
    losses = []
    for _ in range(120):
        loss = (layer(x) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.05 * losses[0]
