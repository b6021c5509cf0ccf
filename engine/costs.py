"""What a model's forward and decode cost, computed from its architecture; no torch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class CostModel:
    """What a forward and a decode cost, in floating-point operations of the architecture.

    The transformer is a stack of blocks with self-attention, cross-attention to `text_tokens`
    and a feed-forward part (Wan and its kin). With `has_token_timesteps` each token has its own
    timestep (the Wan 2.2 TI2V way), so the timestep's embedding is computed per token.
    `token_stride` is (frames, rows, columns) of output per token; `decode_flops` is the VAE
    decoder's operations per output pixel. `further_matrices` counts what a block does to a token
    besides, in products with dim x dim matrices.
    """

    num_layers: int
    dim: int
    ffn_dim: int
    text_tokens: int
    has_token_timesteps: bool
    token_stride: tuple[int, int, int]
    decode_flops: float
    further_matrices: int = 0

    def num_tokens(self, *, width: int, height: int, num_frames: int) -> int:
        return _num_tokens(self.token_stride, width, height, num_frames)

    def forward_flops(self, num_tokens: int) -> float:
        """Operations of one forward; a multiply and an add count as two."""
        # Self-attention q, k, v, out; cross-attention q, out; the two feed-forward matrices.
        per_token = (12 + 2 * self.further_matrices) * self.dim**2 + 4 * self.dim * self.ffn_dim
        # Scores and weighted sum, against every token and every text token.
        attention = 4 * self.dim * num_tokens * (num_tokens + self.text_tokens)
        text_keys_values = 4 * self.dim**2 * self.text_tokens
        blocks = self.num_layers * (per_token * num_tokens + attention + text_keys_values)
        # The embedding's second matrix and its projection to six modulation vectors.
        timesteps = 14 * self.dim**2 * (num_tokens if self.has_token_timesteps else 1)
        return blocks + timesteps


@dataclass(frozen=True, kw_only=True)
class JointCostModel:
    """What a forward and a decode cost where text and picture go through the blocks together.

    The transformer is a stack of blocks with one attention over picture and `text_tokens` (Flux
    and its kin). `token_matrices` counts what a block does to a token in products with dim x dim
    matrices; of experts only those that a token goes through. `reference_share` is the number of
    tokens of reference pictures per token of the output.
    """

    num_blocks: int
    dim: int
    token_matrices: float
    text_tokens: int
    token_stride: tuple[int, int, int]
    decode_flops: float
    reference_share: float = 0.0

    def num_tokens(self, *, width: int, height: int, num_frames: int) -> int:
        return _num_tokens(self.token_stride, width, height, num_frames)

    def forward_flops(self, num_tokens: int) -> float:
        """Operations of one forward; a multiply and an add count as two."""
        tokens = num_tokens * (1 + self.reference_share) + self.text_tokens
        matrices = 2 * self.token_matrices * self.dim**2 * tokens
        return self.num_blocks * (matrices + 4 * self.dim * tokens**2)


def _num_tokens(stride: tuple[int, int, int], width: int, height: int, num_frames: int) -> int:
    frames, rows, columns = stride
    return (1 + (num_frames - 1) // frames) * (height // rows) * (width // columns)
