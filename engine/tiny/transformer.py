"""The built-in transformer: its configuration, its start, and a fast training pass.

The saved model is a stock `WanTransformer3DModel`. The training pass computes the same function
with plain matrix attention, one padding token that stands for all, and two rows of modulation per
clip (clean first frame, noisy rest) instead of one per token.
"""

import math
from typing import Any

import torch
import torch.nn.functional as F
from diffusers import WanTransformer3DModel
from diffusers.models.transformers.transformer_wan import WanAttention, WanRotaryPosEmbed
from torch import Tensor, nn

HEADS, HEAD_DIM = 5, 64
TEXT_LENGTHS = (40, 72)
TRANSFORMER_CONFIG: dict[str, Any] = {
    "patch_size": (1, 2, 2),
    "num_attention_heads": HEADS,
    "attention_head_dim": HEAD_DIM,
    "in_channels": 48,
    "out_channels": 48,
    "text_dim": 192,
    "freq_dim": 128,
    "ffn_dim": 768,
    "num_layers": 6,
    "cross_attn_norm": True,
    "rope_max_seq_len": 64,
}


def build_transformer(config: dict[str, Any] = TRANSFORMER_CONFIG) -> WanTransformer3DModel:
    """A transformer that starts as the identity, with self-attention that starts local."""
    model = WanTransformer3DModel(**config)
    for block in model.blocks:
        for layer in (block.attn2.to_out[0], block.ffn.net[2]):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)
        nn.init.normal_(block.attn1.to_out[0].weight, std=0.02)
        nn.init.zeros_(block.scale_shift_table)
        with torch.no_grad():
            block.scale_shift_table[:, [2, 5]] = 1.0  # gates start open
        _position_biases(block.attn1, model.rope)
    nn.init.zeros_(model.condition_embedder.time_proj.weight)
    nn.init.zeros_(model.condition_embedder.time_proj.bias)
    nn.init.zeros_(model.scale_shift_table)
    nn.init.zeros_(model.proj_out.weight)
    nn.init.zeros_(model.proj_out.bias)
    return model


@torch.no_grad()
def _position_biases(attention: WanAttention, rope: WanRotaryPosEmbed) -> None:
    """Biases on q and k that make each head look at a place: Wan has no absolute positions.

    A constant in a rotary pair turns into a score that peaks at a chosen offset. Head 0 looks at
    the same place in any frame, head 1 at the same token, head 2 one row and head 3 one column on.
    """
    strength = 3.0
    starts = {"t": 0, "h": rope.t_dim, "w": rope.t_dim + rope.h_dim}
    offsets = ({"h": 0, "w": 0}, {"t": 0, "h": 0, "w": 0}, {"h": 1, "w": 0}, {"h": 0, "w": 1})
    frequencies = {
        axis: [10000 ** (-2 * i / dim) for i in range(2)]
        for axis, dim in (("t", rope.t_dim), ("h", rope.h_dim), ("w", rope.w_dim))
    }
    for head, wanted in enumerate(offsets):
        for axis, offset in wanted.items():
            for pair, frequency in enumerate(frequencies[axis]):
                channel = head * HEAD_DIM + starts[axis] + 2 * pair
                attention.to_q.bias[channel] += strength * math.cos(offset * frequency)
                attention.to_q.bias[channel + 1] += strength * math.sin(offset * frequency)
                attention.to_k.bias[channel] += strength


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary embedding of (B, L, heads, dim) with pairs (even, odd); cos and sin (L, 1, dim/2)."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


def _heads(x: Tensor) -> Tensor:
    return x.view(x.shape[0], x.shape[1], HEADS, HEAD_DIM)


def _attend(q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None) -> Tensor:
    """Plain attention of (B, L, heads, dim): on a CPU its backward beats the fused one."""
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    scores = (q * HEAD_DIM**-0.5) @ k.transpose(-1, -2)
    if bias is not None:
        scores = scores + bias
    weights = scores.float().softmax(-1).to(v.dtype)
    attended: Tensor = weights @ v
    return attended.transpose(1, 2).flatten(2)


def _norm(x: Tensor) -> Tensor:
    return F.layer_norm(x.float(), (x.shape[-1],), eps=1e-6)


def _rms(x: Tensor, weight: Tensor) -> Tensor:
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight


Parameters = dict[str, Tensor]


def _linear(p: Parameters, name: str, x: Tensor) -> Tensor:
    return F.linear(x, p[f"{name}.weight"], p[f"{name}.bias"])


def block_pass(
    p: Parameters,
    x: Tensor,
    text: tuple[Tensor, Tensor],
    modulation: tuple[Tensor, Tensor],
    rotary: tuple[Tensor, Tensor],
) -> Tensor:
    """One block on tokens x (B, L, D) with modulation (B, 2, 6, D) of first frame and others.

    It takes the block's parameters, not the block: compiled code then serves all blocks.
    """
    words, bias = text
    rows, is_first = modulation
    table = p["scale_shift_table"].unsqueeze(0) + rows.float()
    shift, scale, gate, c_shift, c_scale, c_gate = (
        torch.where(is_first, part[:, :1], part[:, 1:]) for part in table.unbind(2)
    )
    h = (_norm(x) * (1 + scale) + shift).to(words.dtype)
    q = _heads(_rms(_linear(p, "attn1.to_q", h), p["attn1.norm_q.weight"]))
    k = _heads(_rms(_linear(p, "attn1.to_k", h), p["attn1.norm_k.weight"]))
    q, k = rotate(q, *rotary).to(h.dtype), rotate(k, *rotary).to(h.dtype)
    attended = _attend(q, k, _heads(_linear(p, "attn1.to_v", h)), None)
    x = x + _linear(p, "attn1.to_out.0", attended).float() * gate
    h = (_norm(x) * p["norm2.weight"] + p["norm2.bias"]).to(words.dtype)
    q = _heads(_rms(_linear(p, "attn2.to_q", h), p["attn2.norm_q.weight"]).to(h.dtype))
    k = _heads(_rms(_linear(p, "attn2.to_k", words), p["attn2.norm_k.weight"]).to(h.dtype))
    attended = _attend(q, k, _heads(_linear(p, "attn2.to_v", words)), bias)
    x = x + _linear(p, "attn2.to_out.0", attended).float()
    h = (_norm(x) * (1 + c_scale) + c_shift).to(words.dtype)
    h = F.gelu(_linear(p, "ffn.net.0.proj", h), approximate="tanh")
    return x + _linear(p, "ffn.net.2", h).float() * c_gate


class TrainingPass:
    """Calls the transformer as training needs it; `compiled` compiles the block pass."""

    def __init__(self, model: WanTransformer3DModel, *, compiled: bool) -> None:
        self.model = model
        if compiled:
            # Two text lengths times three token counts, for clips and for images.
            torch._dynamo.config.recompile_limit = 16
        self.block = torch.compile(block_pass, dynamic=False) if compiled else block_pass

    def __call__(self, noisy: Tensor, times: Tensor, text: Tensor, text_bias: Tensor) -> Tensor:
        """Velocities (B, C, F, H, W) of noisy latents.

        times (B, 2) in 0..1000: of the first latent frame and of the others. text (B, S, dim)
        with text_bias (B, 1, 1, S) added to the cross-attention scores.
        """
        model = self.model
        rotary = tuple(table[0, :, :, 0::2].contiguous() for table in model.rope(noisy))
        x = model.patch_embedding(noisy).flatten(2).transpose(1, 2).float().contiguous()
        embedder = model.condition_embedder
        embedded = embedder.time_embedder(embedder.timesteps_proj(times.flatten()))
        embedded = embedded.view(*times.shape, -1)
        modulation = embedder.time_proj(F.silu(embedded)).unflatten(2, (6, -1))
        text = embedder.text_embedder(text)
        is_first = (torch.arange(x.shape[1]) < x.shape[1] // noisy.shape[2]).view(1, -1, 1)
        for block in model.blocks:
            parameters = dict(block.named_parameters())
            x = self.block(parameters, x, (text, text_bias), (modulation, is_first), rotary)
        table = model.scale_shift_table.unsqueeze(0) + embedded.unsqueeze(2)
        shift, scale = (torch.where(is_first, r[:, :1], r[:, 1:]) for r in table.unbind(2))
        out: Tensor = model.proj_out(_norm(x) * (1 + scale) + shift)
        b, _, f, h, w = noisy.shape
        out = out.view(b, f, h // 2, w // 2, 1, 2, 2, -1).permute(0, 7, 1, 4, 2, 5, 3, 6)
        return out.flatten(6, 7).flatten(4, 5).flatten(2, 3)


def text_inputs(embeddings: list[Tensor], pads: list[int]) -> tuple[Tensor, Tensor]:
    """Stack embeddings (n_i, dim) behind one zero token that stands for `pads[i]` paddings."""
    longest = max(len(e) for e in embeddings)
    # Two lengths only: every other one would be compiled anew.
    length = next(n for n in TEXT_LENGTHS if n > longest)
    text = torch.zeros(len(embeddings), length, embeddings[0].shape[1])
    bias = torch.full((len(embeddings), 1, 1, length), -1e4)
    for row, (embedding, pad) in enumerate(zip(embeddings, pads, strict=True)):
        text[row, 1 : len(embedding) + 1] = embedding
        bias[row, ..., 1 : len(embedding) + 1] = 0
        if pad > 0:
            bias[row, ..., 0] = math.log(pad)
    return text, bias
