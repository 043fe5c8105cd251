"""Which processor, kernels and versions a finding about speed or correctness holds for."""

from functools import cache

import llvmlite.binding as llvm
import numba
import torch
from numba import config

from .simd import FEATURES, SOURCE_STAMP


@cache
def identity() -> str:
    """Two that are equal compute the same way: the processor that is compiled for, our kernels, torch and Numba."""
    processor = config.CPU_NAME or llvm.get_host_cpu_name()
    features = ",".join(sorted(name for name, is_there in FEATURES.items() if is_there))
    return f"{processor} {features} kernels {SOURCE_STAMP:08x} torch {torch.__version__} numba {numba.__version__}"
