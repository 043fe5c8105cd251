"""A process that may have little more memory, and then computes a prompt that needs much; run by a test.

python little_memory.py MODEL
"""

import resource
import sys
from pathlib import Path

import torch

from paged_chat.engine import Engine, EngineConfig, SamplingParams

SHORT, LONG = [1, 2, 3], [5] * 2000
PARAMS = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)
SPARE_BYTES = 24 << 20  # the scores of one layer take 64 MB for the long prompt


def tell(model: str) -> None:
    """The long prompt ends with the reason, the short one beside it as it would have, and no block is held."""
    config = EngineConfig(
        model=model,
        device="cpu",
        dtype="float32",
        kernels="reference",
        num_blocks=1000,
        max_num_batched_tokens=8192,
        check_integrity=True,
    )
    torch.set_num_threads(1)
    with Engine(config) as engine:
        [expected] = engine.generate([SHORT], PARAMS)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + SPARE_BYTES, resource.RLIM_INFINITY))
        long, short = engine.submit(LONG, PARAMS), engine.submit(SHORT, PARAMS)
        tokens: list[int] = []
        ends: dict[str, str | None] = {}
        while len(ends) < 2:
            for delta in engine.step():
                if delta.request_id == short:
                    tokens += delta.token_ids
                if delta.finish_reason is not None:
                    ends[delta.request_id] = delta.error
        assert (ends[long] or "").startswith("memory ran out while this request was computed: close other programs")
        assert ends[short] is None
        assert tuple(tokens) == tuple(expected.samples[0].token_ids)
        assert engine.snapshot().num_referenced == 0


if __name__ == "__main__":
    tell(sys.argv[1])
