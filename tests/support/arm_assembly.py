"""The innermost loops as assembly for a 64-bit ARM processor, from whatever machine this is.

`NUMBA_CPU_FEATURES=+neon,+dotprod python arm_assembly.py` prints one JSON object.
"""

import json
import re
from collections import Counter
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir
from numba import types

from paged_chat.kernels.cpu import piece_attention
from paged_chat.kernels.cpu.row_spans import CAN_BE_COARSE
from paged_chat.kernels.cpu.simd import BFLOAT16, I64
from paged_chat.kernels.cpu.tile_rows import MOST_ROWS, tile_rows

TRIPLE, PROCESSOR = "aarch64-unknown-linux-gnu", "cortex-a76"
ARITHMETIC = ("sdot", "usdot", "smlal", "fmla", "addv", "eor")


def arithmetic() -> dict[str, dict[str, int]]:
    """How often each instruction stands in each loop."""
    loops = {
        f"linear, {bits} bits, {rows} rows": _function(tile_rows, (bits, 0, rows), 11)
        for bits in (4, 8)
        for rows in (1, MOST_ROWS)
    }
    if CAN_BE_COARSE:
        loops["linear, coarse rows"] = _function(tile_rows, (4, 1, MOST_ROWS), 11)
    loops["scores"] = _function(piece_attention._block_scores, (64, 3, BFLOAT16), 5)
    loops["values"] = _function(piece_attention._weighted_values, (64, 3, BFLOAT16), 9)
    return {name: _count(module) for name, module in loops.items()}


def _function(intrinsic: Any, literals: tuple[int, ...], num_addresses: int) -> ir.Module:
    """What Numba would put in place of a call of the intrinsic; of the literals nothing is left."""
    kinds = [types.literal(value) for value in literals]
    signature, generate = intrinsic._defn(None, *kinds, *[types.uint64] * num_addresses)
    module = ir.Module()
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), [I64] * num_addresses), "loop")
    builder = ir.IRBuilder(function.append_basic_block())
    generate(_Context(), builder, signature, [None] * len(literals) + list(function.args))
    builder.ret_void()
    return module


class _Context:
    def get_dummy_value(self) -> None:
        return None


def _count(module: ir.Module) -> dict[str, int]:
    parsed = llvm.parse_assembly(str(module))
    parsed.verify()
    machine = llvm.Target.from_triple(TRIPLE).create_target_machine(cpu=PROCESSOR, features=_features(), opt=3)
    passes = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(3))
    passes.getModulePassManager().run(parsed, passes)
    machine.emit_object(parsed)
    instructions = Counter(re.findall(r"^\t([a-z]\w*)", machine.emit_assembly(parsed), re.MULTILINE))
    return {name: instructions[name] for name in ARITHMETIC if instructions[name]}


def _features() -> str:
    from numba import config

    return str(config.CPU_FEATURES)


if __name__ == "__main__":
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    print(json.dumps(arithmetic()))
