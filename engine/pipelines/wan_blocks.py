"""Wan's transformer blocks on a CPU with fewer and smaller operations than diffusers' own.

On a CPU a small model's forward is bound by elementwise passes over memory, not by its products.
The weights and the mathematics are diffusers'; products are rounded to bfloat16 where the
processor has units for it, so results equal diffusers' up to rounding, never bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - the field's notation
from diffusers import WanTransformer3DModel
from diffusers.models.transformers.transformer_wan import WanAttention, WanAttnProcessor

from engine.caching.wrapping import replaced

# A run holds few different inputs at a time: embeddings of both branches, whole or in part.
_MEMO_SIZE = 4


def product_dtype() -> torch.dtype:
    """bfloat16 where this processor multiplies matrices of it faster, else float32."""
    is_faster = torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
    return torch.bfloat16 if is_faster else torch.float32


class FastTransformer:
    """Stands in for a Wan transformer's forward while `installed`; holds its own copy of weights.

    The blocks keep their signature, so diffusers' step caches hook them as they hook its own.
    """

    def __init__(self, transformer: Any, *, dtype: torch.dtype) -> None:
        self._transformer = transformer
        self._blocks = [_FastBlock(block, dtype) for block in transformer.blocks]
        self._rope = _Memo(transformer.rope.forward, key=lambda latents: latents.shape[2:])

    @staticmethod
    def can_stand_in_for(pipeline: Any) -> bool:
        """Whether the one transformer is made of the parts that this file knows, on a CPU."""
        transformer = pipeline.transformer
        return (
            type(transformer) is WanTransformer3DModel
            and pipeline.transformer_2 is None
            and transformer.device.type == "cpu"
            and transformer.condition_embedder.image_embedder is None
            and all(
                _is_plain(attention)
                for block in transformer.blocks
                for attention in (block.attn1, block.attn2)
            )
        )

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Compute the transformer's forwards this way while the body runs."""
        transformer = self._transformer
        text_embedder = transformer.condition_embedder.text_embedder
        embed = _Memo(_once_for_equal_rows(text_embedder.forward))
        with ExitStack() as stack:
            forward = transformer.forward
            stack.enter_context(replaced(transformer, forward=_with_common_timesteps(forward)))
            stack.enter_context(replaced(transformer.rope, forward=self._rope))
            stack.enter_context(replaced(text_embedder, forward=embed))
            for block, fast in zip(transformer.blocks, self._blocks, strict=True):
                stack.enter_context(replaced(block, forward=fast))
                stack.callback(fast.forget)
            yield


class _FastBlock:
    """One block: fused projections, norms folded into tables, text keys and values kept."""

    def __init__(self, block: Any, dtype: torch.dtype) -> None:
        attention, cross = block.attn1, block.attn2
        self._dtype = dtype
        self._heads = attention.heads
        self._eps = attention.norm_q.eps
        self._norm_eps = block.norm1.eps
        self._table = block.scale_shift_table.float().unsqueeze(1)
        order = _halves_first(attention)
        weights = [attention.to_q.weight[order], attention.to_k.weight[order]]
        biases = [attention.to_q.bias[order], attention.to_k.bias[order]]
        self._qkv = (
            torch.cat([*weights, attention.to_v.weight]).to(dtype),
            torch.cat([*biases, attention.to_v.bias]).to(dtype),
        )
        self._gammas = torch.stack(
            [attention.norm_q.weight[order], attention.norm_k.weight[order]]
        ).float()
        self._out = _linear(attention.to_out[0], dtype)
        self._cross_norm = _norm(block.norm2, dtype)
        self._cross_q = _linear(cross.to_q, dtype)
        self._cross_out = _linear(cross.to_out[0], dtype)
        self._up = _linear(block.ffn.net[0].proj, dtype)
        self._down = _linear(block.ffn.net[2], dtype)
        self._cross = cross
        self._text = _Memo(_once_for_equal_rows(self._keys_values))
        self._rotation = _Memo(self._rotation_tables)

    def forget(self) -> None:
        """Drop the keys and values of a run's prompts.

        They are not kept for other edges: of the built-in model they take 6 % of one forward to
        compute, once for the two dozen or more of an edge, and 0.5 MB a prompt to keep; and most
        edges have a prompt of their own. A timestep's modulation takes 0.06 %.
        """
        self._text.clear()

    def __call__(
        self,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        temb: torch.Tensor,
        rotary_emb: tuple[torch.Tensor, torch.Tensor],
    ) -> torch.Tensor:
        """As WanTransformerBlock: (B, S, D), (B, T, D), (1 or B, 6, D) or (B, S, 6, D)."""
        modulation = self._table + (temb if temb.ndim == 4 else temb.unsqueeze(1)).float()
        shift, scale, gate, c_shift, c_scale, c_gate = modulation.unbind(dim=2)
        normed = self._modulated(hidden_states, scale, shift)
        attended = self._self_attention(normed, rotary_emb)
        hidden_states = hidden_states + attended * gate.to(self._dtype)
        normed = self._cross_norm(hidden_states.to(self._dtype))
        hidden_states += self._cross_attention(normed, encoder_hidden_states)
        normed = self._modulated(hidden_states, c_scale, c_shift)
        fed = F.linear(F.gelu(F.linear(normed, *self._up), approximate="tanh"), *self._down)
        hidden_states += fed * c_gate.to(self._dtype)
        return hidden_states

    def _modulated(
        self, hidden_states: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor
    ) -> torch.Tensor:
        narrow = hidden_states.to(self._dtype)
        normed = F.layer_norm(narrow, narrow.shape[-1:], eps=self._norm_eps)
        return torch.addcmul(shift.to(self._dtype), normed, (1 + scale).to(self._dtype))

    def _self_attention(
        self, normed: torch.Tensor, rotary_emb: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        rows, tokens, _ = normed.shape
        projected = F.linear(normed, *self._qkv).view(rows, tokens, 3, self._heads, -1)
        pair = projected[:, :, :2]
        pair = pair * self._inverse_rms(pair, dims=(-2, -1))
        cosine, sine = self._rotation(rotary_emb[0], rotary_emb[1])
        rolled = pair.roll(pair.shape[-1] // 2, dims=-1)
        pair = torch.addcmul(pair * cosine, rolled, sine)
        query, key = pair.transpose(1, 3).unbind(dim=2)
        value = projected[:, :, 2].transpose(1, 2)
        return self._attend(query, key, value, self._out)

    def _cross_attention(self, normed: torch.Tensor, text: torch.Tensor) -> torch.Tensor:
        query = F.linear(normed, *self._cross_q)
        query = query * self._inverse_rms(query, dims=(-1,))
        key, value = self._text(text)
        query = self._by_head(query)
        return self._attend(query, key, value, self._cross_out)

    @staticmethod
    def _attend(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        out: tuple[torch.Tensor, torch.Tensor],
    ) -> torch.Tensor:
        attended = F.scaled_dot_product_attention(query, key, value)
        return F.linear(attended.transpose(1, 2).flatten(2), *out)

    def _inverse_rms(self, values: torch.Tensor, *, dims: tuple[int, ...]) -> torch.Tensor:
        norm = torch.linalg.vector_norm(values, dim=dims, keepdim=True, dtype=torch.float32)
        inverse: torch.Tensor = (norm.square() / self._gammas.shape[-1] + self._eps).rsqrt()
        return inverse.to(self._dtype)

    def _keys_values(self, text: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values (B, heads, T, D/heads) of a prompt; they do not depend on the step.

        The query's norm weights stand in the keys, as only their product counts.
        """
        cross = self._cross
        keys = cross.norm_k(cross.to_k(text)) * cross.norm_q.weight
        values = cross.to_v(text)
        return self._by_head(keys.to(self._dtype)), self._by_head(values.to(self._dtype))

    def _by_head(self, values: torch.Tensor) -> torch.Tensor:
        rows, tokens, _ = values.shape
        return values.view(rows, tokens, self._heads, -1).transpose(1, 2)

    def _rotation_tables(
        self, cosine: torch.Tensor, sine: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Factors (S, 2, heads, D/heads) of queries and keys: rotary embedding times norm weights.

        Halves of a head stand side by side, so a rotation is two products and one roll.
        """
        gammas = self._gammas.view(2, self._heads, -1)
        cosines = cosine[0, :, None, :, 0::2].repeat(1, 1, 1, 2)
        half = sine[0, :, None, :, 1::2]
        sines = torch.cat([-half, half], dim=-1)
        swapped = gammas.roll(gammas.shape[-1] // 2, dims=-1)
        return (cosines * gammas).to(self._dtype), (sines * swapped).to(self._dtype)


class _Memo:
    """Keeps a function's latest results by the very tensors (or a key) it was called with."""

    def __init__(
        self, function: Callable[..., Any], *, key: Callable[..., Any] | None = None
    ) -> None:
        self._function = function
        self._key = key
        # The arguments are kept beside the results, so that no other tensor takes their id.
        self._entries: dict[Any, tuple[Any, Any]] = {}

    def __call__(self, *args: torch.Tensor) -> Any:
        key = tuple(map(id, args)) if self._key is None else self._key(*args)
        if key not in self._entries:
            if len(self._entries) == _MEMO_SIZE:
                del self._entries[next(iter(self._entries))]
            self._entries[key] = (args if self._key is None else None, self._function(*args))
        return self._entries[key][1]

    def clear(self) -> None:
        self._entries.clear()


def _once_for_equal_rows(function: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    """Compute one row where all rows are views of it, as with siblings' negative prompt."""

    def call(text: torch.Tensor) -> Any:
        if text.stride(0) or len(text) == 1:
            return function(text)
        results = function(text[:1])
        if isinstance(results, torch.Tensor):
            return results.expand(len(text), *results.shape[1:])
        return tuple(each.expand(len(text), *each.shape[1:]) for each in results)

    return call


def _with_common_timesteps(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Embed a timestep that all tokens share once, not for each of them.

    Wan 2.2 TI2V gives each token its timestep; they differ only where a first frame is given.
    """

    def call(*args: Any, timestep: torch.Tensor, **kwargs: Any) -> Any:
        if bool((timestep == timestep.flatten()[0]).all()):
            timestep = timestep.flatten()[:1]
        return forward(*args, timestep=timestep, **kwargs)

    return call


def _halves_first(attention: WanAttention) -> torch.Tensor:
    """For each head its even channels, then its odd ones: a rotation turns one with the other."""
    order = torch.arange(attention.inner_dim).view(attention.heads, -1, 2)
    return order.transpose(1, 2).flatten()


def _linear(linear: Any, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    return linear.weight.to(dtype), linear.bias.to(dtype)


def _norm(norm: Any, dtype: torch.dtype) -> Callable[[torch.Tensor], torch.Tensor]:
    if isinstance(norm, torch.nn.Identity):
        return lambda values: values
    weight, bias, eps = norm.weight.to(dtype), norm.bias.to(dtype), norm.eps
    return lambda values: F.layer_norm(values, values.shape[-1:], weight, bias, eps)


def _is_plain(attention: Any) -> bool:
    linears = (attention.to_q, attention.to_k, attention.to_v, attention.to_out[0])
    return (
        type(attention) is WanAttention
        and type(attention.processor) is WanAttnProcessor
        and attention.add_k_proj is None
        and not attention.fused_projections
        and all(type(linear) is torch.nn.Linear for linear in linears)
    )
