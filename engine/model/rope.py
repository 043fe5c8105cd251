"""Rotary position tables: the angle of every pair of features at every position."""

import math

import torch
from torch import Tensor

from .config import RopeConfig


def cos_sin_tables(
    config: RopeConfig, head_dim: int, num_positions: int, device: torch.device | str = "cpu"
) -> tuple[Tensor, Tensor]:  # [num_positions, head_dim / 2] float32 each
    """Angles are taken in float32, as in transformers, so that both agree at every position."""
    frequencies = inverse_frequencies(config, head_dim)
    angles = torch.outer(torch.arange(num_positions, dtype=torch.float32), frequencies)
    cos, sin = angles.cos(), angles.sin()
    if config.attention_factor != 1.0:
        cos *= config.attention_factor
        sin *= config.attention_factor
    return cos.to(device), sin.to(device)


def inverse_frequencies(config: RopeConfig, head_dim: int) -> Tensor:  # [head_dim / 2] float32
    """Radians per position of each feature pair; `RopeConfig` says where each formula comes from."""
    exponents = torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim
    periods = config.theta**exponents  # of one radian, in positions
    frequencies = 1.0 / periods
    if config.kind == "linear":
        frequencies = frequencies / config.factor
    elif config.kind == "llama3":
        frequencies = _llama3(config, frequencies)
    elif config.kind == "yarn":
        frequencies = _yarn(config, periods, head_dim)
    if config.frequency_factors:
        frequencies = frequencies / torch.tensor(config.frequency_factors, dtype=torch.float32)
    return frequencies


def yarn_attention_factor(factor: float, scale: float = 1.0) -> float:
    """0.1 · scale · ln(factor) + 1, by which longer contexts sharpen attention (Peng et al. 2023, equation 22)."""
    return 1.0 if factor <= 1 else 0.1 * scale * math.log(factor) + 1.0


def _llama3(config: RopeConfig, frequencies: Tensor) -> Tensor:
    turns = config.original_max_position * frequencies / (2 * math.pi)  # full circles within the trained context
    keep = (turns - config.low_freq_factor) / (config.high_freq_factor - config.low_freq_factor)
    keep = keep.clamp(0.0, 1.0)
    return (1 - keep) * frequencies / config.factor + keep * frequencies


def _yarn(config: RopeConfig, periods: Tensor, head_dim: int) -> Tensor:
    def feature_with(turns: float) -> float:
        """The feature pair that turns so many full circles within the trained context."""
        return head_dim * math.log(config.original_max_position / (turns * 2 * math.pi)) / (2 * math.log(config.theta))

    low, high = feature_with(config.beta_fast), feature_with(config.beta_slow)
    if config.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, head_dim - 1)
    if low == high:
        high += 0.001
    keep = 1 - ((torch.arange(head_dim // 2, dtype=torch.float32) - low) / (high - low)).clamp(0.0, 1.0)
    # In transformers' order: at position 20,000 one rounding more is a thousandth of a radian.
    return 1.0 / (config.factor * periods) * (1 - keep) + 1.0 / periods * keep
