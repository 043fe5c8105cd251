"""A stand-in for a model, as strict as one: its logits depend on every token before, as read back from its slots.

So a reply is right only if each slot held the right token behind the right history when it was read. Runs in
microseconds; `reply_to` says what the model answers when nothing is paged at all.
"""

import math
from collections.abc import Callable, Iterable
from collections.abc import Sequence as ListOf
from dataclasses import dataclass, field

import numpy as np
import torch
import xxhash

from cache_driver import copy_slots
from paged_chat.engine.batch import Batch
from paged_chat.engine.cache.block_hash import BlockHasher
from paged_chat.engine.cache.block_manager import BlockManager
from paged_chat.engine.core import EngineCore
from paged_chat.engine.events import EventLog
from paged_chat.engine.request import FinishReason, RequestStats, SamplingParams, TokenDelta, TokenLogprobs
from paged_chat.engine.request_check import ModelLimits
from paged_chat.engine.scheduler import ScheduledStep
from paged_chat.engine.sequence import Sequence
from paged_chat.engine.speculation.drafter import Drafter
from paged_chat.engine.step_logits import StepLogits
from paged_chat.engine.text.tokenizer import Tokenizer

VOCAB_SIZE = 50
NUM_LAYERS = 4


class SlotRunner:
    """Executes batches over a dictionary of slots; what lies in a slot is a digest of its whole history."""

    def __init__(self, block_size: int = 16, logits_of: Callable[[ListOf[bytes]], torch.Tensor] | None = None) -> None:
        self.slots: dict[int, bytes] = {}
        self.steps: list[list[int]] = []  # how many tokens each sequence computed, decodes first
        self.copies: list[tuple[tuple[int, int], ...]] = []
        self.failures: list[Exception] = []  # raised by the next steps, one each
        self.raises_at: int | None = None  # a token that no step survives
        self.nan_at: int | None = None  # a token that makes what stands behind it no numbers
        self.faulty_layer = 3  # what is blamed for that
        self.nan_entries: set[bytes] = set()
        self.before_step: Callable[[], None] = lambda: None
        self._block_size = block_size
        self._logits_of = logits_of or random_logits

    @property
    def num_tokens(self) -> int:
        """Tokens computed in all."""
        return sum(sum(step) for step in self.steps)

    def execute(self, batch: Batch) -> torch.Tensor:
        self.before_step()
        counts = [1] * batch.num_decodes + [int(count) for count in np.diff(batch.cu_seqlens_q)]
        assert sum(counts) == len(batch.input_ids) == len(batch.positions) == len(batch.slot_mapping)
        self.steps.append(counts)
        self.copies.append(batch.copies)
        copy_slots(self.slots, batch.copies, self._block_size)
        if self.failures:
            raise self.failures.pop(0)
        if self.raises_at in batch.input_ids:
            raise RuntimeError(f"token {self.raises_at} can't be computed")
        logits, row = [], 0
        wanted = set(batch.logits_rows.tolist())
        assert len(set(batch.slot_mapping.tolist())) == len(batch.slot_mapping), "two tokens go to one slot"
        for index, count in enumerate(counts):
            end = int(batch.context_lens[index])
            slots = [self._slot(batch.block_tables[index], position) for position in range(end)]
            assert slots[end - count :] == batch.slot_mapping[row : row + count].tolist()
            assert min(slots) >= self._block_size, "the null block holds nobody's tokens"
            history = [self.slots[slot] for slot in slots[: end - count]]
            for position in range(end - count, end):
                assert batch.positions[row] == position
                is_nan = batch.input_ids[row] == self.nan_at or not self.nan_entries.isdisjoint(history)
                history.append(entry(history, int(batch.input_ids[row])))
                if is_nan:
                    self.nan_entries.add(history[-1])
                self.slots[slots[position]] = history[-1]
                if row in wanted:
                    logits.append(torch.full((VOCAB_SIZE,), math.nan) if is_nan else self._logits_of(history))
                row += 1
        return torch.stack(logits) if logits else torch.empty(0, VOCAB_SIZE)

    def find_faulty_layer(self, batch: Batch) -> int | None:
        return self.faulty_layer if StepLogits(self.execute(batch)).faulty_rows else None

    def _slot(self, block_table: np.ndarray, position: int) -> int:
        return int(block_table[position // self._block_size]) * self._block_size + position % self._block_size


def entry(history: ListOf[bytes], token_id: int) -> bytes:
    """What stands for the KV of a token: it depends on everything before it."""
    return xxhash.xxh3_64_digest(b"".join(history) + token_id.to_bytes(4, "little"))


def random_logits(history: ListOf[bytes]) -> torch.Tensor:
    """[vocab] float32, as if by chance, the same for the same history."""
    seed = int.from_bytes(xxhash.xxh3_64_digest(b"".join(history)), "little")
    return torch.from_numpy(np.random.default_rng(seed).normal(scale=2.0, size=VOCAB_SIZE).astype(np.float32))


def script(num_prompt_tokens: int, reply: ListOf[int], vocab_size: int) -> Callable[[ListOf[bytes]], torch.Tensor]:
    """Logits of a model that answers any prompt of this length with this reply."""

    def logits_of(history: ListOf[bytes]) -> torch.Tensor:
        logits = torch.zeros(vocab_size)
        logits[reply[len(history) - num_prompt_tokens]] = 1.0
        return logits

    return logits_of


def prompt(length: int, first: int = 0) -> list[int]:
    """Prompts with another first token have nothing in common."""
    return [first, *((first + i * 7) % VOCAB_SIZE for i in range(1, length))]


def reply_to(prompt: Iterable[int], max_tokens: int) -> tuple[int, ...]:
    """The greedy reply, computed from the whole prompt each time, without blocks, batches or a cache."""
    history: list[bytes] = []
    for token_id in prompt:
        history.append(entry(history, token_id))
    reply: list[int] = []
    while len(reply) < max_tokens:
        reply.append(int(random_logits(history).argmax()))
        history.append(entry(history, reply[-1]))
    return tuple(reply)


def make_core(
    runner: SlotRunner | None = None,
    *,
    num_blocks: int = 64,
    block_size: int = 16,
    max_num_seqs: int = 64,
    max_num_batched_tokens: int = 2048,
    max_model_len: int = 2048,
    prefix_caching: bool = True,
    watermark_blocks: int = 0,
    hasher: BlockHasher | None = None,
    end_token_ids: Iterable[int] = (),
    key_fields: tuple[str, ...] = ("weights",),
    tokenizer: Tokenizer | None = None,
    vocab_size: int = VOCAB_SIZE,
    event_capacity: int = 8192,
    drafter: Drafter | None = None,
) -> EngineCore:
    """An engine core over a stand-in model, which checks its invariants after every step."""
    manager = BlockManager(
        num_blocks,
        block_size,
        prefix_caching=prefix_caching,
        watermark_blocks=watermark_blocks,
        hasher=hasher,
        events=EventLog(event_capacity),
    )
    return EngineCore(
        runner or SlotRunner(block_size),
        manager,
        ModelLimits(
            vocab_size=vocab_size,
            max_model_len=max_model_len,
            num_layers=NUM_LAYERS,
            end_token_ids=frozenset(end_token_ids),
            key_fields=key_fields,
        ),
        max_num_seqs=max_num_seqs,
        max_num_batched_tokens=max_num_batched_tokens,
        tokenizer=tokenizer,
        drafter=drafter,
        check_every_step=True,
    )


@dataclass
class Heard:
    """All that was ever said of one sample."""

    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    finish_reason: FinishReason | None = None
    error: str | None = None
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    stats: RequestStats | None = None
    score: float | None = None

    def add(self, delta: TokenDelta) -> None:
        assert self.finish_reason is None, "a delta after the end"
        self.token_ids += delta.token_ids
        self.text += delta.text
        self.logprobs += delta.logprobs
        self.finish_reason, self.error, self.stats = delta.finish_reason, delta.error, delta.stats
        self.score = delta.score


class Listener:
    """Steps a core and remembers what each sample said, by (request id, sample)."""

    def __init__(self, core: EngineCore) -> None:
        self.core = core
        self.heard: dict[tuple[str, int], Heard] = {}

    def step(self) -> list[TokenDelta]:
        deltas = self.core.step()
        for delta in deltas:
            self.heard.setdefault((delta.request_id, delta.sample), Heard()).add(delta)
        return deltas

    def run(self, max_steps: int = 10_000) -> None:
        """Until nothing is unfinished."""
        for _ in range(max_steps):
            if not self.core.has_unfinished:
                return
            self.step()
        raise AssertionError(f"still unfinished after {max_steps} steps")

    def reply(self, request_id: str, sample: int = 0) -> Heard:
        return self.heard.get((request_id, sample), Heard())


def ask(core: EngineCore, prompt: Iterable[int], params: SamplingParams | None = None, *, salt: str = "") -> Heard:
    """One request, alone, to its end; gives its first sample."""
    return ask_all(core, prompt, params, salt=salt)[0]


def ask_all(
    core: EngineCore, prompt: Iterable[int], params: SamplingParams | None = None, *, salt: str = ""
) -> list[Heard]:
    """One request, alone, to its end; gives every sample."""
    params = params or greedy(1)
    listener = Listener(core)
    request_id = core.submit(list(prompt), params, salt=salt)
    listener.run()
    return [listener.reply(request_id, sample) for sample in range(params.n)]


def greedy(max_tokens: int, **others: object) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=max_tokens, **others)  # type: ignore[arg-type]


def sequence_of(core: EngineCore, request_id: str, sample: int = 0) -> Sequence:
    return core._requests[request_id].replies[sample].sequence


def preempt(core: EngineCore, request_id: str, sample: int = 0) -> None:
    """Takes a running sequence's blocks away between two steps, as the scheduler does when it needs them."""
    core.scheduler._preempt(sequence_of(core, request_id, sample), ScheduledStep(budget=0))


def preempt_all(core: EngineCore) -> None:
    """Takes the blocks of everything that runs."""
    for sequence in reversed(list(core.scheduler.running)):
        core.scheduler._preempt(sequence, ScheduledStep(budget=0))
