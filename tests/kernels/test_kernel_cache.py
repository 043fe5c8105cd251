"""What Numba keeps of our kernels on the disk."""

import numpy as np
import pytest

from paged_chat.kernels.cpu import (
    amx_prefill,
    amx_step,
    attention,
    elementwise,
    packed_rows,
    packed_step,
    prefix_attention,
)
from paged_chat.kernels.cpu.simd import BFLOAT16, SOURCE_STAMP

KEPT = {
    "attention": attention._compile(64, 3, BFLOAT16),
    "norm": elementwise._compile_norm(BFLOAT16),
    "rope": elementwise._compile_rope(BFLOAT16),
    "silu_mul": elementwise._compile_silu_mul(BFLOAT16),
    "packed rows": packed_rows._compile_rows(4),
    "packed step": packed_step.compile_step(64, 3, 3, BFLOAT16, 4, 8, 0, 0, 0, 0),
    "packed step that rounds prompts": packed_step.compile_step(64, 3, 3, BFLOAT16, 4, 8, 0, 0, 1, 8),
    "packed step that shares by tiles": packed_step.compile_step(64, 3, 3, BFLOAT16, 4, 8, 1, 1, 0, 0),
    "shared attention": prefix_attention._compile(64, 3, BFLOAT16, 0),
    "shared attention by tiles": prefix_attention._compile(64, 3, BFLOAT16, 1),
    "tiled attention": amx_prefill._compile(64, 1),
    "tiled step": amx_step.compile_step(64, 3, 3, BFLOAT16, 4, 8, 1),
}


@pytest.mark.parametrize("function", KEPT.values(), ids=KEPT.keys())
def test_a_change_of_any_kernel_file_compiles_anew(function):
    """Numba's key holds what a function closes over, and else only the file it stands in."""
    assert SOURCE_STAMP in [cell.cell_contents for cell in function.py_func.__closure__]


@pytest.mark.parametrize("function", KEPT.values(), ids=KEPT.keys())
def test_what_is_kept_is_found_by_the_next_process(function):
    """Plain numbers are the same in each; a compiled function in the key has a number of its own in every process."""
    kinds = {type(cell.cell_contents) for cell in function.py_func.__closure__}
    assert kinds <= {int, str, bool, type(np.float32)}
