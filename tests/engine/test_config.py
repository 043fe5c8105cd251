"""The engine's configuration: what is out of range is refused by name, where it is built."""

import math

import pytest

from paged_chat.engine import EngineConfig
from paged_chat.engine.errors import InvalidParameter


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("model", ("smollm2-135m", "/some/folder"), ("", None, 5)),
        ("device", ("auto", "cpu", "cuda", "cuda:1"), ("gpu", "cpu:1", "cuda:", "cuda:x", "", None, 5)),
        ("dtype", ("auto", "float32", "bfloat16", "float16"), ("int8", "", None, 5)),
        ("weights", ("auto", "dense"), ("int3", "", None, 5)),
        ("kernels", ("auto", "triton", "cpu", "reference"), ("fast", "", None, 5)),
        ("block_size", (1, 16, 256), (0, -16, 257, 1.5, None, True)),
        ("num_blocks", (2, 512, None), (0, 1, -1, 1.5, True)),
        ("kv_memory", (1, 2**30, 0.5, 1.0, None), (0, -1, 0.0, 1.1, math.nan, "1 GB", True)),
        ("max_num_seqs", (1, 64), (0, -1, 1.5, None)),
        ("max_num_batched_tokens", (1, 2048), (0, -1, 1.5, None)),
        ("max_model_len", (2, 8192, None), (0, 1, -1, 1.5)),
        ("prefix_caching", (True, False), (None, "yes")),
        ("watermark", (0, 0.0, 0.5), (-0.1, 1, 1.5, math.nan, None, "x")),
        ("check_integrity", (True, False), (None, "yes")),
    ],
)
def test_values_out_of_range_are_refused_by_name(name, good, bad):
    for value in good:
        EngineConfig(**{name: value})
    for value in bad:
        with pytest.raises(InvalidParameter, match=name):
            EngineConfig(**{name: value})


def test_a_configuration_cannot_be_changed():
    with pytest.raises(AttributeError):
        EngineConfig().num_blocks = 5
