"""The same kernels compiled for other processors: the same bits there, and the instructions that they have for it.

Numba's own variables say what it compiles for. An older processor of the same make runs on this one; for ARM the
innermost loops are compiled to assembly and looked at.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import other_processor
from paged_chat.kernels.cpu.simd import FEATURES

SSE = "+sse2,+ssse3,+sse4.1,+sse4.2"
AVX2 = f"{SSE},+avx,+avx2,+fma,+f16c"
AVX512 = f"{AVX2},+avx512f,+avx512bw,+avx512vl,+avx512dq"
# Desktop and laptop processors of 2013 and 2021, a server's of 2017, and one before AVX.
PROCESSORS = {
    "haswell": f"{AVX2},-avx512f,-avx512vnni,-avxvnni",
    "alderlake": f"{AVX2},+avxvnni,-avx512f,-avx512vnni",
    "skylake-avx512": f"{AVX512},-avx512vnni,-avxvnni",
    "nehalem": f"{SSE},-avx,-avx2,-fma,-f16c,-avx512f,-avx512vnni,-avxvnni",
}
SCRIPTS = Path(other_processor.__file__).parent


def printed(script, environment):
    """The JSON that a script prints in a process of its own."""
    command = [sys.executable, str(SCRIPTS / script)]
    ended = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-2000:]
    return json.loads(ended.stdout)


@pytest.fixture(scope="module")
def digests_here():
    return other_processor.digests()


@pytest.mark.parametrize("name", PROCESSORS)
def test_products_and_attention_are_the_same_to_the_bit(digests_here, name):
    needed = [feature[1:] for feature in PROCESSORS[name].split(",") if feature.startswith("+")]
    if missing := [feature for feature in needed if not FEATURES.get(feature)]:
        pytest.skip(f"this processor has no {', '.join(missing)}")
    environment = {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": PROCESSORS[name]}
    assert printed("other_processor.py", environment) == digests_here


@pytest.mark.parametrize(
    ("features", "product", "eight_rows_of_8_bits"),
    [
        ("+neon,+dotprod,+i8mm", "usdot", {"usdot": 128, "fmla": 16}),
        # Signed bytes only: weights of 8 bits lose 128 each, and get it back by two products and a sum a row and byte.
        ("+neon,+dotprod", "sdot", {"sdot": 128 + 32, "addv": 16, "eor": 8, "fmla": 16}),
        ("+neon", "smlal", {"smlal": 128, "fmla": 16}),
    ],
)
def test_arm_multiplies_bytes_by_fours_where_it_can(features, product, eight_rows_of_8_bits):
    """A group of 32 columns, two bytes an activation: 16 products of 16 bytes for each four outputs of a row."""
    loops = printed("arm_assembly.py", {"NUMBA_CPU_FEATURES": features})
    assert loops["linear, 4 bits, 1 rows"] == {product: 16, "fmla": 2}
    assert loops["linear, 4 bits, 8 rows"] == {product: 128, "fmla": 16}
    assert loops["linear, 8 bits, 8 rows"] == eight_rows_of_8_bits
    # Half as many products, and d times what makes a coarse step of a fine one, m and the middle once for all rows.
    assert loops.get("linear, coarse rows") == ({product: 64, "fmla": 16} if "dotprod" in features else None)
    assert loops["scores"] == {"fmla": 3 * 64}
