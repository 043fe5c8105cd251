"""The promise of `weights="int8"`, on the default model: a reply is the same to the bit however it is computed.

Token ids, greedy and seeded, and log probabilities: alone, in a batch, cached, in chunks of a few tokens, preempted,
with tokens guessed ahead and without.
"""

import random
from dataclasses import replace
from typing import Any

import pytest

from foretelling import ForetellingDrafter, from_replies
from paged_chat.engine import Engine, EngineConfig, SamplingParams

NUM_HISTORIES = 50
REPLY_TOKENS = 4
BATCH = 8
VOCAB_SIZE = 49152


def histories() -> list[list[int]]:
    """Half start as an earlier one does, cut at any token."""
    generator = random.Random(17)
    made: list[list[int]] = []
    for number in range(NUM_HISTORIES):
        start: list[int] = []
        if number % 2:
            earlier = generator.choice(made)
            start = earlier[: generator.randint(1, len(earlier))]
        made.append([*start, *(generator.randrange(3, VOCAB_SIZE) for _ in range(generator.randint(1, 24)))])
    return made


def params() -> list[SamplingParams]:
    """Greedy ones and seeded ones in turn, with the cuts and penalties that people use."""
    common: dict[str, Any] = {"max_tokens": REPLY_TOKENS, "ignore_eos": True, "logprobs": 3}
    kinds: list[dict[str, Any]] = [
        {"temperature": 0.0},
        {"temperature": 1.0, "seed": 5},
        {"temperature": 0.0, "repetition_penalty": 1.2},
        {"temperature": 0.8, "top_p": 0.9, "top_k": 40, "seed": 6},
    ]
    return [SamplingParams(**common, **kinds[number % 4]) for number in range(NUM_HISTORIES)]


def in_batches(engine, batch_size):
    """(token ids, log probabilities) of every reply, so many requests at a time; how often one was preempted."""
    prompts, each = histories(), params()
    replies, num_preemptions = [], 0
    for first in range(0, NUM_HISTORIES, batch_size):
        together = slice(first, first + batch_size)
        for output in engine.generate(prompts[together], each[together]):
            [sample] = output.samples
            replies.append((sample.token_ids, sample.logprobs))
            num_preemptions += sample.stats.num_preemptions
    return replies, num_preemptions


@pytest.fixture
def open_int8(default_model):
    def open_engine(**fields):
        values = {"num_blocks": 256, "prefix_caching": True, "watermark": 0.0, **fields}
        return Engine(EngineConfig(model=default_model, device="cpu", weights="int8", **values))

    return open_engine


def test_replies_are_the_same_to_the_bit_however_they_are_computed(open_int8):
    with open_int8(prefix_caching=False) as engine:
        alone, _ = in_batches(engine, 1)
        batched, _ = in_batches(engine, BATCH)
    assert {len(token_ids) for token_ids, _ in alone} == {REPLY_TOKENS}
    assert {len(logprobs) for _, logprobs in alone} == {REPLY_TOKENS}
    assert batched == alone

    with open_int8() as engine:
        cached, _ = in_batches(engine, 1)
        # Now every prompt is there but for its last token.
        warm, _ = in_batches(engine, BATCH)
        assert engine.snapshot().hits > 1000
    assert cached == alone
    assert warm == alone

    with open_int8(max_num_batched_tokens=7) as engine:
        chunked, _ = in_batches(engine, BATCH)
    assert chunked == alone

    with open_int8(num_blocks=7) as engine:
        preempted, num_preemptions = in_batches(engine, BATCH)
        assert engine.snapshot().evictions > 20
    assert num_preemptions >= 5
    assert preempted == alone


def test_replies_are_the_same_to_the_bit_with_tokens_guessed_ahead(open_int8):
    """Drafts of any length, of which any beginning is right, alone and beside others."""
    prompts, each = histories()[:8], [replace(own, max_tokens=12) for own in params()[:8]]
    with open_int8(speculation="off") as engine:
        plain = [output.samples[0] for output in engine.generate(prompts, each)]
        replies = {tuple(prompt): sample.token_ids for prompt, sample in zip(prompts, plain, strict=True)}
        engine._core.scheduler.drafter = ForetellingDrafter(foretell=from_replies(replies))
        drafted = [engine.generate([prompt], own)[0].samples[0] for prompt, own in zip(prompts, each, strict=True)]
        drafted += [output.samples[0] for output in engine.generate(prompts[:3], each[:3])]
        assert engine.snapshot().accepted_tokens > 40
    said = [(sample.token_ids, sample.logprobs) for sample in plain]
    assert [(sample.token_ids, sample.logprobs) for sample in drafted] == said + said[:3]
