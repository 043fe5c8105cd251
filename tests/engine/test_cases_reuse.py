"""Faults that users of other systems met, each as a story: what prompts share, and never may."""

from functools import partial

import pytest

import tiny_models
from cache_driver import WorstHasher
from case_prompts import KERNELS, PROMPT, steps_until
from paged_chat.engine import ChatMessage, assembly
from paged_chat.engine.cache.block_hash import BlockHasher
from paged_chat.engine.cache.block_manager import BlockManager
from replies import all_steps, ask, drawn, greedy, reply_ids
from slot_runner import ask as ask_core
from slot_runner import make_core, preempt
from tiny_tokenizer import with_tokenizer

PROMPT_SMALL = [i % 50 for i in range(100)]  # for the stand-in model, whose vocabulary is small

# E1: a hash that collides


@pytest.mark.parametrize("hasher", [BlockHasher(bits=8), WorstHasher()], ids=["8 bits", "as bad as can be"])
def test_e1_colliding_hashes_never_mix_up_prompts(make_engine, monkeypatch, hasher):
    monkeypatch.setattr(assembly, "BlockManager", partial(BlockManager, hasher=hasher))
    cached = make_engine(num_blocks=24)
    plain = make_engine(num_blocks=24, prefix_caching=False)
    common = PROMPT[100:116]
    for number in range(16):
        # The second block is the same in all, the first is not.
        first = [3 + (number * 31 + i) % 300 for i in range(16)]
        for prompt in ([*first, *common, 5 + number % 3], [*first, *common, *common]):
            assert reply_ids(cached, prompt, greedy(2)) == reply_ids(plain, prompt, greedy(2))
    assert cached.snapshot().hits > 0


def test_e1_a_match_needs_the_same_parent(make_engine):
    engine = make_engine()
    first, second, common = PROMPT[:16], PROMPT[50:66], PROMPT[100:116]
    ask(engine, [*first, *common, 5], greedy(1))
    assert engine.probe([*second, *common, 5]).num_cached_tokens == 0


# E2: fields that concatenate alike


def test_e2_salts_and_names_that_concatenate_alike_share_nothing():
    first, second = make_core(key_fields=("ab",)), make_core(key_fields=("a",))
    assert first.root("c") != second.root("bc")
    # In one and the same pool, too.
    second.manager.hasher, second.manager.pool = first.manager.hasher, first.manager.pool
    ask_core(first, PROMPT_SMALL[:40], salt="c")
    assert first.probe(PROMPT_SMALL[:40], salt="c").num_cached_tokens == 39
    assert second.probe(PROMPT_SMALL[:40], salt="bc").num_cached_tokens == 0


@pytest.mark.parametrize(("first", "second"), [("ab", "a"), ("", " "), ("a", "a\x00"), ("é", "e\u0301")])
def test_e2_any_two_salts_share_nothing(make_engine, first, second):
    engine = make_engine()
    ask(engine, PROMPT[:40], greedy(1), salt=first)
    assert ask(engine, PROMPT[:40], greedy(1), salt=second).num_cached_tokens == 0


# E3: equal prompts at once


@pytest.mark.parametrize("kernels", KERNELS)
def test_e3_eight_equal_prompts_compute_each_block_once(make_engine, kernels):
    engine = make_engine(kernels=kernels, max_num_batched_tokens=32)
    outputs = engine.generate([PROMPT[:64]] * 8, greedy(6))
    alone = reply_ids(make_engine(kernels=kernels), PROMPT[:64], greedy(6))
    assert [output.samples[0].token_ids for output in outputs] == [alone] * 8
    assert sorted(output.num_cached_tokens for output in outputs) == [0] + [63] * 7
    snapshot = engine.snapshot()
    assert (snapshot.misses, snapshot.hits) == (64 + 7, 7 * 63)


# E4: other weights under the same name


def test_e4_other_weights_under_the_same_name_are_a_miss(make_engine, tmp_path):
    folder = tmp_path / "model"
    roots = []
    for seed in (0, 1, 0):
        tiny_models.build("llama", folder, seed=seed)
        roots.append(make_engine(model=str(folder))._open_core().root(""))
    assert roots[0] != roots[1]
    assert roots[0] == roots[2]


def test_e4_whatever_changes_the_kv_changes_the_key(make_engine):
    variants = [
        {},
        {"kernels": "reference"},  # another layout inside a block
        {"kernels": "reference", "dtype": "bfloat16"},
        {"overrides": {"rms_norm_eps": 1e-4}},
    ]
    roots = {make_engine(**variant)._open_core().root("") for variant in variants}
    assert len(roots) == 4


# E5: the same prompt twice


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 31, 32, 33])
def test_e5_a_prompt_sent_twice_recomputes_only_its_last_token(make_engine, kernels, length):
    engine = make_engine(kernels=kernels)
    first, second = (ask(engine, PROMPT[:length], greedy(6)) for _ in range(2))
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, length - 1)
    assert first.samples[0].token_ids == second.samples[0].token_ids


# E18: the next turn


@pytest.mark.parametrize("kernels", KERNELS)
def test_e18_hits_reach_to_the_end_of_a_reply_sampled_hot(make_engine, kernels):
    engine = make_engine(kernels=kernels)
    history = PROMPT[:20]
    for turn in range(4):
        output = ask(engine, history, drawn(25, temperature=1.2, seed=turn))
        # New are 7 tokens; the last token of the reply before them was sampled and never read.
        assert output.num_cached_tokens == (0 if turn == 0 else len(history) - 7 - 1)
        history = [*history, *output.samples[0].token_ids, *PROMPT[300 + turn : 307 + turn]]


def test_e18_a_chat_splices_the_replys_own_ids(make_engine, tiny_model, tmp_path):
    engine = make_engine(model=str(with_tokenizer(tiny_model(), tmp_path / "speaks")))
    chat = [ChatMessage("user", "hello there")]
    first = engine.encode_chat(chat)
    [sample] = ask(engine, first, drawn(30, temperature=1.2, seed=2)).samples
    chat += [ChatMessage("assistant", sample.text, token_ids=sample.token_ids), ChatMessage("user", "and then?")]
    second = engine.encode_chat(chat)
    assert second[: len(first) + 30] == [*first, *sample.token_ids]
    assert ask(engine, second, greedy(1)).num_cached_tokens == len(first) + 29


# E22: what the counters say


def test_e22_prompts_that_share_nothing_hit_nothing_after_an_eviction(make_engine):
    engine = make_engine(num_blocks=12)
    ask(engine, PROMPT[:160], greedy(1))
    before = engine.snapshot()
    outputs = engine.generate([PROMPT[300:370], PROMPT[500:570]], greedy(5))
    after = engine.snapshot()
    assert after.evictions > 0
    assert [output.num_cached_tokens for output in outputs] == [0, 0]
    assert after.hits - before.hits == 0
    assert after.misses - before.misses == 140
    assert after.recomputed == 0


def test_e22_recomputation_after_preemption_is_counted_apart(make_engine):
    engine = make_engine(num_blocks=12, prefix_caching=False)
    request_id = engine.submit(PROMPT[:40], greedy(20))
    steps_until(engine, request_id, 50)
    preempt(engine._open_core(), request_id)
    all_steps(engine)
    snapshot = engine.snapshot()
    assert (snapshot.hits, snapshot.misses, snapshot.recomputed) == (0, 40, 50)
    assert snapshot.preemptions == 1


def test_e22_a_preempted_prompt_that_finds_its_blocks_again_is_no_hit(make_engine):
    engine = make_engine()
    request_id = engine.submit(PROMPT[:40], greedy(20))
    steps_until(engine, request_id, 50)
    preempt(engine._open_core(), request_id)
    deltas = all_steps(engine)
    snapshot = engine.snapshot()
    assert (snapshot.hits, snapshot.misses, snapshot.recomputed) == (0, 40, 1)
    assert deltas[-1].stats.num_cached_tokens == 0
