"""Torch tensors as the arrays and numbers that compiled functions take."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .simd import BFLOAT16, FLOAT16, FLOAT32

KINDS = {torch.float32: FLOAT32, torch.bfloat16: BFLOAT16, torch.float16: FLOAT16}


def kind_of(tensor: Tensor) -> int:
    """How its numbers are stored, for functions that are compiled for one kind."""
    return KINDS[tensor.dtype]


def as_array(tensor: Tensor) -> NDArray[Any]:
    """The same memory; half precision, which Numba doesn't compute with, as uint16."""
    return tensor.numpy() if tensor.dtype == torch.float32 else tensor.view(torch.uint16).numpy()


def address(tensor: Tensor) -> np.uint64:
    """Where its first element lies."""
    return np.uint64(tensor.data_ptr())


def stride_bytes(tensor: Tensor, dim: int) -> np.uint64:
    return np.uint64(tensor.stride(dim) * tensor.element_size())
