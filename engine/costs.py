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
    decoder's operations per output pixel.
    """

    num_layers: int
    dim: int
    ffn_dim: int
    text_tokens: int
    has_token_timesteps: bool
    token_stride: tuple[int, int, int]
    decode_flops: float

    def num_tokens(self, *, width: int, height: int, num_frames: int) -> int:
        frames, rows, columns = self.token_stride
        return (1 + (num_frames - 1) // frames) * (height // rows) * (width // columns)

    def forward_flops(self, num_tokens: int) -> float:
        """Operations of one forward; a multiply and an add count as two."""
        # Self-attention q, k, v, out; cross-attention q, out; the two feed-forward matrices.
        per_token = 12 * self.dim**2 + 4 * self.dim * self.ffn_dim
        # Scores and weighted sum, against every token and every text token.
        attention = 4 * self.dim * num_tokens * (num_tokens + self.text_tokens)
        text_keys_values = 4 * self.dim**2 * self.text_tokens
        blocks = self.num_layers * (per_token * num_tokens + attention + text_keys_values)
        # The embedding's second matrix and its projection to six modulation vectors.
        timesteps = 14 * self.dim**2 * (num_tokens if self.has_token_timesteps else 1)
        return blocks + timesteps
