"""What an engine tells of its pool and of each reply."""

import pytest
import torch

from paged_chat.engine import PrefixProbe
from replies import all_steps, ask, greedy, transformers_model

PROMPT = [1, *((7 * i) % 300 + 3 for i in range(199))]

# Figures


def test_probe_says_what_a_request_would_reuse(engine):
    assert engine.probe(PROMPT[:40]).num_cached_tokens == 0
    ask(engine, PROMPT[:40], greedy(1))
    before = engine.snapshot()
    assert engine.probe(PROMPT[:40]) == PrefixProbe(39, 2, 39)
    parted = engine.probe([*PROMPT[:20], 5, 5, 5])
    assert (parted.num_cached_tokens, parted.num_cached_blocks, parted.first_missing_token) == (20, 1, 20)
    assert engine.snapshot() == before
    assert ask(engine, [*PROMPT[:20], 5, 5, 5], greedy(1)).num_cached_tokens == 20


def test_the_snapshot_in_the_middle_of_a_request_and_after_it(engine):
    engine.submit(PROMPT[:40], greedy(5, n=2))
    engine.step()
    snapshot = engine.snapshot()
    assert (snapshot.num_blocks, snapshot.block_size) == (64, 16)
    # Keys and values, 2 layers, 2 heads of 16 features, 16 tokens, 4 bytes.
    assert snapshot.block_bytes == 2 * 2 * 2 * 16 * 16 * 4
    assert (snapshot.num_free, snapshot.num_cached, snapshot.num_referenced, snapshot.num_shared) == (60, 0, 3, 3)
    assert snapshot.ref_counts[:5] == (0, 2, 2, 2, 0)
    assert (snapshot.num_running, snapshot.num_waiting) == (2, 0)
    all_steps(engine)
    snapshot = engine.snapshot()
    assert (snapshot.num_referenced, snapshot.num_shared, snapshot.num_running) == (0, 0, 0)
    assert snapshot.num_free + snapshot.num_cached == 63
    assert (snapshot.hits, snapshot.misses, snapshot.copies, snapshot.evictions) == (0, 40, 1, 0)
    assert snapshot.hit_rate == 0
    ask(engine, PROMPT[:40], greedy(1))
    assert engine.snapshot().hit_rate == 39 / 80


def test_what_a_reply_cost(engine):
    [sample] = ask(engine, PROMPT[:40], greedy(5)).samples
    stats = sample.stats
    assert (stats.num_prompt_tokens, stats.num_cached_tokens, stats.num_generated_tokens) == (40, 0, 5)
    assert stats.num_preemptions == 0
    assert 0 <= stats.queue_ms <= stats.ttft_ms <= stats.total_ms
    assert stats.decode_tokens_per_s == pytest.approx(4e3 / (stats.total_ms - stats.ttft_ms), rel=0.01)
    [sample] = ask(engine, PROMPT[:40], greedy(1)).samples
    assert (sample.stats.num_cached_tokens, sample.stats.decode_tokens_per_s) == (39, 0)


def test_logprobs_are_the_models_own(engine, tiny_model):
    [sample] = ask(engine, PROMPT[:20], greedy(4, logprobs=3)).samples
    model = transformers_model(tiny_model())
    with torch.inference_mode():
        logits = model(torch.tensor([[*PROMPT[:20], *sample.token_ids]])).logits[0]
    for position, logprobs in enumerate(sample.logprobs):
        expected = torch.log_softmax(logits[19 + position], dim=-1)
        values, ids = expected.topk(3)
        assert logprobs.token_id == sample.token_ids[position] == ids[0]
        assert logprobs.logprob == pytest.approx(float(values[0]), abs=1e-4)
        assert [token_id for token_id, _ in logprobs.top] == ids.tolist()
        assert [value for _, value in logprobs.top] == pytest.approx(values.tolist(), abs=1e-4)
    assert len(sample.logprobs) == 4


def test_no_logprobs_unless_asked_for(engine):
    assert ask(engine, PROMPT[:5], greedy(3)).samples[0].logprobs == ()


def test_events_can_be_read_on_from_where_one_stopped(engine):
    ask(engine, PROMPT[:20], greedy(2))
    first = engine.events()
    assert [event.number for event in first] == list(range(len(first)))
    assert engine.events(since=len(first)) == []
    ask(engine, PROMPT[:20], greedy(2))
    assert engine.events(since=len(first))[0].number == len(first)
    assert engine.snapshot().num_events == len(engine.events())


def test_salts_share_nothing_and_get_the_same_replies(engine):
    first = ask(engine, PROMPT[:40], greedy(5), salt="ann")
    second = ask(engine, PROMPT[:40], greedy(5), salt="bob")
    third = ask(engine, PROMPT[:40], greedy(5), salt="ann")
    assert [output.num_cached_tokens for output in (first, second, third)] == [0, 0, 39]
    assert first.samples[0].token_ids == second.samples[0].token_ids == third.samples[0].token_ids
    assert engine.probe(PROMPT[:40]).num_cached_tokens == 0
    assert engine.probe(PROMPT[:40], salt="bob").num_cached_tokens == 39


def test_without_prefix_caching_nothing_is_reused(make_engine):
    engine = make_engine(prefix_caching=False)
    for _ in range(2):
        assert ask(engine, PROMPT[:40], greedy(3)).num_cached_tokens == 0
    snapshot = engine.snapshot()
    assert (snapshot.num_free, snapshot.num_cached, snapshot.hits, snapshot.misses) == (63, 0, 0, 80)
