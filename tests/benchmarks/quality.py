"""How far quantised weights move the model's predictions: mean KL divergence from float32, in nats a token.

    python tests/benchmarks/quality.py
    python tests/benchmarks/quality.py --llama-python PATH/TO/python --llama-gguf MODEL.Q4_0.gguf

The text is this project's README, its page on the architecture, and the licence. All read the same token ids. The truth
is the model's file, dequantised to float32 and computed in float32. With --llama-python, an interpreter that has
llama-cpp-python, llama.cpp computes the same tokens from a file of its own choice of quantisation.
"""

import argparse
import itertools
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

ROOT = Path(__file__).parent.parent.parent
sys.path.append(str(ROOT / "tests" / "support"))

from paged_chat.engine.config import DEFAULT_MODEL, EngineConfig  # noqa: E402
from paged_chat.engine.home import prepared_folder  # noqa: E402
from paged_chat.engine.model.loader import LoadedModel, load_model  # noqa: E402
from paged_chat.engine.text.tokenizer import Tokenizer  # noqa: E402
from paged_chat.engine.text.tokenizer_files import read_tokenizer_files  # noqa: E402
from paged_decoder import PagedDecoder  # noqa: E402

TEXTS = ("README.md", "LICENSE", "docs/architecture.md")
STEP_TOKENS = 48  # few enough to be exact, as while decoding
LONG = "default, long prompts"
LONG_STEP_TOKENS = 128  # as long prompts are computed
LONG_STEP_TAIL = 16
"""Of a long step the rows that are compared: the engine asks for the last one's logits alone, and rows before these
are coarse where the processor has no matrix tiles."""


@dataclass(frozen=True, slots=True)
class Divergence:
    """Of one way to compute from the truth, over all tokens."""

    name: str
    mean: float  # nats a token
    worst_percent: float  # the 99th percentile
    same_choice: float  # share of tokens after which the most likely next one is the same


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=DEFAULT_MODEL)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--llama-python", type=Path, help="an interpreter that can import llama_cpp")
    parser.add_argument("--llama-gguf", type=Path, help="what llama.cpp reads")
    options = parser.parse_args()
    if (options.llama_python is None) != (options.llama_gguf is None):
        parser.error("--llama-python and --llama-gguf go together")

    truth = load(options.model, dtype="float32", weights="dense")
    token_ids = text_token_ids(truth, options.tokens)
    ways = {
        "default": lambda: ours(load(options.model), token_ids, STEP_TOKENS),
        LONG: lambda: ours(load(options.model), token_ids, LONG_STEP_TOKENS),
        "int8": lambda: ours(load(options.model, weights="int8"), token_ids, STEP_TOKENS),
    }
    if options.llama_gguf is not None:
        ways[f"llama.cpp, {options.llama_gguf.name}"] = lambda: llama(
            options.llama_python, options.llama_gguf, token_ids
        )
    print(f"{len(token_ids)} tokens of {', '.join(TEXTS)} on {truth.name}")
    print(f"{'':32} {'mean KL':>10} {'99th percentile':>16} {'same choice':>12}")
    for name, logits in ways.items():
        found = divergence(name, ours(truth, token_ids, STEP_TOKENS), logits(), compares_tails=name == LONG)
        print(f"{found.name:32} {found.mean:10.5f} {found.worst_percent:16.5f} {found.same_choice:11.1%}", flush=True)


def load(model: str, **fields: str) -> LoadedModel:
    return load_model(EngineConfig(model=model, device="cpu", kernels="cpu", **fields))  # type: ignore[arg-type]


def text_token_ids(model: LoadedModel, num_tokens: int) -> list[int]:
    """As many of each text as it takes for all of them together, in equal shares."""
    files = read_tokenizer_files(model.tokenizer_source, prepared_folder(model.tokenizer_source))
    assert files is not None, "a model with a tokenizer is needed"
    tokenizer = Tokenizer(files)
    token_ids: list[int] = []
    for i, name in enumerate(TEXTS):
        wanted = (num_tokens - len(token_ids)) // (len(TEXTS) - i)
        token_ids += tokenizer.encode((ROOT / name).read_text(encoding="utf-8"))[:wanted]
    return token_ids


def ours(model: LoadedModel, token_ids: list[int], step_tokens: int) -> Iterator[Tensor]:
    """Logits [tokens, vocab] float32, a few tokens at a time."""
    decoder = PagedDecoder(model.decoder, num_blocks=2 + len(token_ids) // 16, dtype=model.dtype)
    for start in range(0, len(token_ids), step_tokens):
        with torch.inference_mode():
            [logits] = decoder.step(("text", token_ids[start : start + step_tokens]))
        yield logits


def llama(python: Path, gguf: Path, token_ids: list[int]) -> Iterator[Tensor]:
    """llama.cpp's, computed in its own process and read back piece by piece."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "logits.npy"
        script = Path(__file__).with_name("llama_logits.py")
        command = [python, script, gguf, path]
        ended = subprocess.run(command, input=" ".join(map(str, token_ids)), capture_output=True, text=True)
        if ended.returncode:
            raise SystemExit(f"llama.cpp ended with {ended.returncode}: {ended.stderr.strip()[-1000:]}")
        logits = np.load(path, mmap_mode="r")
        for start in range(0, len(token_ids), STEP_TOKENS):
            yield torch.from_numpy(np.array(logits[start : start + STEP_TOKENS]))


def divergence(
    name: str, truth: Iterator[Tensor], other: Iterator[Tensor], *, compares_tails: bool = False
) -> Divergence:
    """Mean over tokens of Σ p log(p / q), p of the truth (Kullback and Leibler 1951); both give all tokens in order."""
    nats, is_same = [], []
    for place, (expected, logits) in enumerate(zip(rows(truth), rows(other), strict=True)):
        if compares_tails and place % LONG_STEP_TOKENS < LONG_STEP_TOKENS - LONG_STEP_TAIL:
            continue
        expected_log, log = (torch.log_softmax(row.double(), dim=-1) for row in (expected, logits))
        nats.append(float((expected_log.exp() * (expected_log - log)).sum()))
        is_same.append(bool(expected.argmax() == logits.argmax()))
    return Divergence(name, float(np.mean(nats)), float(np.percentile(nats, 99)), float(np.mean(is_same)))


def rows(pieces: Iterator[Tensor]) -> Iterator[Tensor]:
    return itertools.chain.from_iterable(pieces)


if __name__ == "__main__":
    main()
