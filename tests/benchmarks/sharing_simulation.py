"""How many KV blocks sharing saves with several replies to a prompt, or a beam search: a simulation without a model.

    python tests/benchmarks/sharing_simulation.py [--requests 300] [--searches 60] [--seed 1]

The figure is that of the PagedAttention paper (Kwon et al. 2023, section 6.3): blocks saved by sharing, divided by the
blocks that there would be without it, both summed over all steps, so a long reply weighs as much as it stays.

What is real: blocks, reference counts, forks and copy-on-write are the engine's own `BlockManager`; beams are its
`EngineCore` and `BeamGroup`, fed with random logits. What is assumed:

- block size 16, as in the paper; 2, 4 and 6 replies or beams.
- Lengths. The means are the paper's (its figure 11): prompts of 19.31 tokens and replies of 58.45 like Alpaca, 161.31
  and 337.99 like ShareGPT. The shapes are ours, for the paper gives none: prompts are log-normal, with a standard
  deviation of half their mean (Alpaca: short instructions) or of 1.2 times (ShareGPT: from a line to pages); replies
  end with the same chance at every token. All replies of a request have one length, as where a trace's lengths are
  replayed. No prompt is over 1,024 tokens and no reply either.
- Prompts share nothing with each other, so that only sharing within a request counts.
- A request's replies run side by side, a token a step.
- Beams: the logits of each beam are independent normal numbers with a standard deviation of 3 over 64 tokens; all beams
  run to a length drawn as that of a reply. How soon beams of a model coalesce depends on how sure it is of its next
  token, so these rows show the mechanism, not a model.
"""

import argparse
import math
import random
from dataclasses import dataclass
from statistics import NormalDist

import torch

from paged_chat.engine.batch import Batch
from paged_chat.engine.cache.block_manager import BlockManager
from paged_chat.engine.core import EngineCore
from paged_chat.engine.request import SamplingParams
from paged_chat.engine.request_check import ModelLimits
from paged_chat.engine.sequence import Sequence, SequenceStatus

BLOCK_SIZE = 16
NUM_BLOCKS = 2048
MAX_LENGTH = 1024  # of a prompt, and of a reply
VOCAB_SIZE = 64
LOGIT_SPREAD = 3.0


@dataclass(frozen=True)
class Lengths:
    """Of the requests of one kind, in tokens."""

    name: str
    mean_prompt: float
    prompt_deviation: float  # as a share of the mean
    mean_reply: float

    def requests(self, count: int, seed: int) -> list[tuple[int, int]]:
        """(prompt, reply) of each request: evenly spread over both distributions, paired by chance.

        The same for every number of replies, so that these can be compared.
        """
        shares = [(place + 0.5) / count for place in range(count)]
        variance = math.log1p(self.prompt_deviation**2)
        normal = NormalDist(math.log(self.mean_prompt) - variance / 2, math.sqrt(variance))
        prompts = [round(math.exp(normal.inv_cdf(share))) for share in shares]
        replies = [1 + int(-self.mean_reply * math.log(1 - share)) for share in shares]
        random.Random(seed).shuffle(replies)
        return [(_within_bounds(prompt), _within_bounds(reply)) for prompt, reply in zip(prompts, replies, strict=True)]


def _within_bounds(length: int) -> int:
    return min(MAX_LENGTH, max(1, length))


ALPACA = Lengths("Alpaca-like", 19.31, 0.5, 58.45)
SHAREGPT = Lengths("ShareGPT-like", 161.31, 1.2, 337.99)


@dataclass
class BlockSteps:
    """Blocks summed over steps."""

    num_alone: int = 0
    num_together: int = 0

    def add(self, sequences: list[Sequence], manager: BlockManager) -> None:
        self.num_alone += sum(len(sequence.block_table) for sequence in sequences)
        self.num_together += manager.pool.num_referenced

    @property
    def share_saved(self) -> float:
        return 1 - self.num_together / self.num_alone


def parallel_sampling(lengths: Lengths, n: int, num_requests: int, seed: int) -> BlockSteps:
    """One request after the other, each with n replies side by side."""
    chance = random.Random(seed)
    manager = BlockManager(NUM_BLOCKS, BLOCK_SIZE)
    steps = BlockSteps()
    for number, (num_prompt, num_reply) in enumerate(lengths.requests(num_requests, seed)):
        prompt = _prompt(num_prompt, chance, number)
        first = Sequence(
            request_id=f"r{number}",
            params=SamplingParams(n=n),
            root=manager.hasher.root(("simulation",)),
            token_ids=prompt,
            num_prompt_tokens=len(prompt),
            max_len=2 * MAX_LENGTH,
        )
        assert manager.admit(first, alone=True), "the pool is too small for one request"
        manager.take_copies()
        _compute(manager, first)
        replies = [first]
        for sample in range(1, n):
            replies.append(first.fork(sample, SequenceStatus.RUNNING))
            manager.fork(first, replies[-1])
        for _ in range(num_reply):
            for reply in replies:
                reply.token_ids.append(chance.randrange(VOCAB_SIZE))
                assert manager.grow(reply, 1), "the pool is too small for one request"
            manager.take_copies()
            for reply in replies:
                _compute(manager, reply)
            steps.add(replies, manager)
        for reply in replies:
            manager.free(reply)
    return steps


def beam_search(lengths: Lengths, width: int, num_requests: int, seed: int) -> BlockSteps:
    """One search after the other, each to its full length."""
    chance = random.Random(seed)
    manager = BlockManager(NUM_BLOCKS, BLOCK_SIZE)
    limits = ModelLimits(vocab_size=VOCAB_SIZE, max_model_len=2 * MAX_LENGTH + 1, end_token_ids=frozenset())
    core = EngineCore(_RandomRunner(seed), manager, limits, max_num_seqs=width, max_num_batched_tokens=2 * MAX_LENGTH)
    steps = BlockSteps()
    for number, (num_prompt, num_reply) in enumerate(lengths.requests(num_requests, seed)):
        core.submit(_prompt(num_prompt, chance, number), SamplingParams(beam_width=width, max_tokens=num_reply))
        while core.has_unfinished:
            core.step()
            if core.scheduler.running:
                steps.add(core.scheduler.running, manager)
    return steps


class _RandomRunner:
    def __init__(self, seed: int) -> None:
        self._generator = torch.Generator().manual_seed(seed)

    def execute(self, batch: Batch) -> torch.Tensor:
        return LOGIT_SPREAD * torch.randn(len(batch.logits_rows), VOCAB_SIZE, generator=self._generator)

    def find_faulty_layer(self, batch: Batch) -> int | None:
        return None


def _prompt(num_tokens: int, chance: random.Random, number: int) -> list[int]:
    """Its first token is its own as long as blocks of earlier prompts may still be found."""
    return [number % VOCAB_SIZE, *(chance.randrange(VOCAB_SIZE) for _ in range(num_tokens - 1))]


def _compute(manager: BlockManager, sequence: Sequence) -> None:
    sequence.num_computed_tokens = len(sequence.token_ids)
    manager.publish(sequence)


def main() -> None:
    parser = argparse.ArgumentParser(description="How many KV blocks sharing saves: a simulation without a model.")
    parser.add_argument("--requests", type=int, default=300, help="with several replies")
    parser.add_argument("--searches", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print("| | 2 | 4 | 6 |\n|---|---|---|---|")
    kinds = (("parallel sampling", parallel_sampling, options.requests), ("beam search", beam_search, options.searches))
    for name, simulate, count in kinds:
        for lengths in (ALPACA, SHAREGPT):
            shares = [100 * simulate(lengths, number, count, options.seed).share_saved for number in (2, 4, 6)]
            print(f"| {lengths.name}, {name} | {' | '.join(f'{share:.1f} %' for share in shares)} |", flush=True)


if __name__ == "__main__":
    main()
