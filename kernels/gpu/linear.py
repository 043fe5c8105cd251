"""Dense matrix products: torch's own, cuBLAS or hipBLAS below it."""

from torch import Tensor
from torch.nn import functional


def linear(
    hidden: Tensor,  # [T, in]
    weight: Tensor,  # [out, in]
    bias: Tensor | None,  # [out]
) -> Tensor:  # [T, out]
    """hidden · weightᵀ + bias."""
    return functional.linear(hidden, weight, bias)
