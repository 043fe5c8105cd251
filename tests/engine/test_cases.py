"""Faults that users of other systems met, each as a story. Blocks hold 16 tokens; models are tiny, in float32.

E13 and E20 also belong to the kernels' own tests, E15 to E17 to those of the text functions.
"""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch

import tiny_models
from cache_driver import WorstHasher
from paged_chat.engine import ChatMessage, Engine, PagedChatError, SamplingParams, TokenDelta, assembly
from paged_chat.engine.cache.block_hash import BlockHasher
from paged_chat.engine.cache.block_manager import BlockManager
from paged_chat.engine.errors import PromptTooLong
from replies import all_steps, ask, ids_of, reply_ids, transformers_model, transformers_reply
from slot_runner import Heard, Listener, SlotRunner, make_core, preempt, script, sequence_of
from slot_runner import ask as ask_core
from slot_runner import greedy as greedy_core
from tiny_tokenizer import BOS, END, spelled, tokenizer_in, with_tokenizer

KERNELS = ("cpu", "reference")
PROMPT = [1, *((11 * i) % 310 + 3 for i in range(1100))]


def greedy(max_tokens: int, **fields: object) -> SamplingParams:
    return SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True, **fields)  # type: ignore[arg-type]


def drawn(max_tokens: int, **fields: object) -> SamplingParams:
    return SamplingParams(max_tokens=max_tokens, ignore_eos=True, **fields)  # type: ignore[arg-type]


def steps_until(engine: Engine, request_id: str, num_tokens: int) -> list[TokenDelta]:
    """Steps until the sequence, prompt included, holds so many tokens."""
    deltas: list[TokenDelta] = []
    while len(sequence_of(engine._open_core(), request_id).token_ids) < num_tokens:
        deltas += engine.step()
    return deltas


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


PROMPT_SMALL = [i % 50 for i in range(100)]  # for the stand-in model, whose vocabulary is small


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


# E6, E7, E9: preemption


@pytest.mark.parametrize("prefix_caching", [True, False])
@pytest.mark.parametrize("num_tokens", [15, 16, 17, 33])
def test_e6_preempted_twice_in_a_row_nothing_is_streamed_twice_or_lost(make_engine, num_tokens, prefix_caching):
    engine = make_engine(prefix_caching=prefix_caching)
    expected = reply_ids(make_engine(), PROMPT[:10], greedy(30))
    request_id = engine.submit(PROMPT[:10], greedy(30))
    deltas = steps_until(engine, request_id, num_tokens)
    for _ in range(2):
        preempt(engine._open_core(), request_id)
        assert engine.snapshot().num_referenced == 0
        deltas += engine.step()
    deltas += all_steps(engine)
    assert ids_of(deltas, request_id) == expected
    assert deltas[-1].stats.num_preemptions == 2
    assert deltas[-1].stats.num_generated_tokens == 30


def test_e6_preempted_again_before_it_is_back(make_engine):
    engine = make_engine(max_num_batched_tokens=8, prefix_caching=False)
    expected = reply_ids(make_engine(), PROMPT[:10], greedy(20))
    request_id = engine.submit(PROMPT[:10], greedy(20))
    deltas = steps_until(engine, request_id, 20)
    for _ in range(2):
        preempt(engine._open_core(), request_id)
        assert engine.step() == []  # 8 of its 20 tokens are computed again, and nothing is streamed
    deltas += all_steps(engine)
    assert ids_of(deltas, request_id) == expected


@pytest.mark.parametrize("prefix_caching", [True, False])
def test_e6_preempted_for_want_of_space(make_engine, prefix_caching):
    engine = make_engine(num_blocks=7, prefix_caching=prefix_caching)
    prompts = [PROMPT[i * 20 : i * 20 + 15] for i in range(4)]
    outputs = engine.generate(prompts, greedy(40))
    plain = make_engine(prefix_caching=False)
    assert [output.samples[0].token_ids for output in outputs] == [reply_ids(plain, p, greedy(40)) for p in prompts]
    assert engine.snapshot().preemptions > 0


def test_e7_a_seeded_reply_preempted_at_token_10_is_the_same(make_engine):
    params = drawn(30, temperature=1.0, seed=7)
    engine = make_engine()
    request_id = engine.submit(PROMPT[:20], params)
    deltas = steps_until(engine, request_id, 20 + 10)
    preempt(engine._open_core(), request_id)
    deltas += all_steps(engine)
    assert ids_of(deltas, request_id) == reply_ids(make_engine(), PROMPT[:20], params)


def test_e9_penalties_usage_and_length_do_not_notice_preemption(make_engine):
    params = drawn(25, temperature=0.8, seed=3, repetition_penalty=1.4, presence_penalty=0.5, frequency_penalty=0.3)
    [alone] = ask(make_engine(), PROMPT[:20], params).samples
    engine = make_engine()
    request_id = engine.submit(PROMPT[:20], params)
    deltas = steps_until(engine, request_id, 20 + 12)
    preempt(engine._open_core(), request_id)
    deltas += all_steps(engine)
    assert ids_of(deltas, request_id) == alone.token_ids
    stats = deltas[-1].stats
    assert (stats.num_prompt_tokens, stats.num_cached_tokens, stats.num_generated_tokens) == (20, 0, 25)
    assert deltas[-1].finish_reason == alone.finish_reason == "length"
    # The penalties do something here.
    assert alone.token_ids != reply_ids(make_engine(), PROMPT[:20], drawn(25, temperature=0.8, seed=3))


# E8, E10, E11: several replies to one prompt


@pytest.mark.parametrize("kernels", KERNELS)
def test_e8_four_seeded_replies_differ_and_each_is_that_of_its_own_seed(make_engine, kernels):
    engine = make_engine(kernels=kernels)
    output = ask(engine, PROMPT[:20], drawn(20, temperature=1.2, seed=42, n=4))
    replies = [sample.token_ids for sample in output.samples]
    assert len(set(replies)) == 4
    alone = make_engine(kernels=kernels, prefix_caching=False)
    assert replies == [reply_ids(alone, PROMPT[:20], drawn(20, temperature=1.2, seed=42 + i)) for i in range(4)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_e10_one_block_is_copied_for_each_reply_that_parts_and_none_for_the_last(make_engine, temperature):
    engine = make_engine()
    output = ask(engine, PROMPT[:20], drawn(40, temperature=temperature, seed=10, n=3))
    assert engine.snapshot().copies == 2
    alone = make_engine(prefix_caching=False)
    assert [sample.token_ids for sample in output.samples] == [
        reply_ids(alone, PROMPT[:20], drawn(40, temperature=temperature, seed=10 + i)) for i in range(3)
    ]


def test_e10_the_prompt_is_computed_and_stored_once(make_engine):
    engine = make_engine()
    engine.submit(PROMPT[:100], drawn(5, temperature=1.0, seed=1, n=8))
    engine.step()
    snapshot = engine.snapshot()
    assert (snapshot.num_referenced, snapshot.num_shared, max(snapshot.ref_counts)) == (7, 7, 8)
    assert (snapshot.hits, snapshot.misses) == (0, 100)


@pytest.mark.parametrize("length", [20, 32])
def test_e11_eight_replies_with_two_free_blocks(make_engine, length):
    engine = make_engine(num_blocks=5)  # four blocks: two for the prompt, two free
    output = ask(engine, PROMPT[:length], drawn(24, temperature=1.2, seed=5, n=8))
    alone = make_engine(prefix_caching=False)
    assert [sample.token_ids for sample in output.samples] == [
        reply_ids(alone, PROMPT[:length], drawn(24, temperature=1.2, seed=5 + i)) for i in range(8)
    ]
    assert engine.snapshot().num_referenced == 0


def test_e11_eight_replies_beside_one_that_leaves_two_free_blocks(make_engine):
    engine = make_engine(num_blocks=10)
    first = engine.submit(PROMPT[200:300], greedy(12))  # seven of nine blocks
    deltas = engine.step()
    second = engine.submit(PROMPT[:20], drawn(20, temperature=1.2, seed=5, n=8))
    deltas += all_steps(engine)
    alone = make_engine(prefix_caching=False)
    assert ids_of(deltas, first) == reply_ids(alone, PROMPT[200:300], greedy(12))
    for i in range(8):
        expected = reply_ids(alone, PROMPT[:20], drawn(20, temperature=1.2, seed=5 + i))
        assert ids_of(deltas, second, sample=i) == expected


# E12: a prompt that never fits


def test_e12_a_prompt_larger_than_the_pool_is_refused_at_once_and_the_next_is_served(make_engine):
    engine = make_engine(num_blocks=50)  # the null block and 49
    with pytest.raises(PromptTooLong) as refusal:
        engine.submit(PROMPT[: 63 * 16], greedy(5))
    assert "63 blocks" in str(refusal.value)
    assert "49 blocks" in str(refusal.value)
    assert isinstance(refusal.value, PagedChatError)
    assert not engine.has_unfinished
    assert len(reply_ids(engine, PROMPT[:20], greedy(5))) == 5


def test_e12_a_prompt_that_fills_the_pool_to_its_last_slot_is_served(make_engine):
    engine = make_engine(num_blocks=50)
    [sample] = ask(engine, PROMPT[: 49 * 16], greedy(5)).samples
    assert sample.token_ids == reply_ids(make_engine(), PROMPT[: 49 * 16], greedy(1))
    with pytest.raises(PromptTooLong):
        engine.submit(PROMPT[: 49 * 16 + 1], greedy(5))


# E13: padding


@pytest.mark.parametrize("kernels", KERNELS)
def test_e13_padded_batches_leave_the_last_block_of_the_pool_alone(make_engine, kernels):
    engine = make_engine(num_blocks=16, kernels=kernels)
    ask(engine, PROMPT[: 12 * 16], greedy(1))
    request_id = engine.submit(PROMPT[500:548], greedy(25))
    deltas = engine.step()
    assert [block.block_id for block in sequence_of(engine._open_core(), request_id).block_table] == [13, 14, 15]
    last_block = engine._open_core()._runner._kv_cache.pool[:, 15]  # of each layer
    before = last_block.clone()
    # Block tables of one to four blocks beside each other: the shorter ones are padded.
    for length in (1, 17, 40):
        engine.submit(PROMPT[200 : 200 + length], greedy(4))
    while engine.has_unfinished:
        deltas += engine.step()
        assert torch.equal(last_block.view(torch.int32), before.view(torch.int32))
    assert ids_of(deltas, request_id) == reply_ids(make_engine(), PROMPT[500:548], greedy(25))


# E14: tiny temperatures


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_e14_tiny_temperatures_agree_with_the_likeliest_and_never_give_nan(make_engine, dtype):
    engine = make_engine(dtype=dtype, kernels="reference" if dtype == "float16" else "cpu")
    replies = set()
    for temperature in (0.0, 1e-6, 1e-4):
        [sample] = ask(engine, PROMPT[:20], drawn(10, temperature=temperature, seed=4, logprobs=1)).samples
        replies.add(sample.token_ids)
        assert all(math.isfinite(logprobs.logprob) for logprobs in sample.logprobs)
        assert [logprobs.top[0][0] for logprobs in sample.logprobs] == list(sample.token_ids)
    assert len(replies) == 1


# E15: stop strings


@pytest.fixture
def say(tmp_path: Path) -> Callable[..., Heard]:
    """What is heard of a model that says `text`, a byte a token; end tokens and lost bytes can be put in."""
    tokenizer = tokenizer_in(tmp_path / "tokenizer")

    def hear(reply: list[int], shown: list[str] | None = None, max_tokens: int = 200, **fields: object) -> Heard:
        runner = SlotRunner(logits_of=script(2, [*reply, *[END] * 5], 320))
        core = make_core(runner, tokenizer=tokenizer, vocab_size=320, end_token_ids=[END])
        listener = Listener(core)
        request_id = core.submit([BOS, 5], greedy_core(max_tokens, **fields))
        while core.has_unfinished:
            for delta in listener.step():
                if shown is not None:
                    shown.append(delta.text)
        return listener.reply(request_id)

    return hear


def test_e15_no_part_of_a_stop_string_is_ever_shown(say):
    shown: list[str] = []
    heard = say(spelled("ABCDEFGHIJKLM"), shown, stop=["DEFGHIJ"])
    assert heard.text == "ABC"
    assert shown == ["A", "B", "C", "", "", "", "", "", "", ""]
    assert heard.finish_reason == "stop"
    assert heard.token_ids == spelled("ABCDEFGHIJ")


def test_e15_held_back_text_is_released_as_soon_as_it_cannot_match(say):
    shown: list[str] = []
    heard = say(spelled("ABCDEFGxyz"), shown, stop=["DEFGHIJ"])
    assert shown == ["A", "B", "C", "", "", "", "", "DEFGx", "y", "z", ""]
    assert (heard.text, heard.finish_reason) == ("ABCDEFGxyz", "stop")


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ("ABABABC.", ["ABABC"], "AB"),
        ("aaab", ["aab"], "a"),
        ("one two", ["two", "one two"], ""),
        ("abcdef", ["cde", "bcdef"], "ab"),
        ("STOPnow", ["STOP"], ""),
        ("nothing here", ["STOP"], "nothing here"),
    ],
)
def test_e15_stop_strings_that_begin_again_within_themselves(say, text, stop, expected):
    heard = say(spelled(text), stop=stop)
    assert heard.text == expected


@pytest.mark.parametrize("max_tokens", [4, 6, 9])
def test_e15_at_the_end_of_the_reply_held_text_is_shown(say, max_tokens):
    heard = say(spelled("ABCDEFGHIJ"), stop=["DEFGHIJ"], max_tokens=max_tokens)
    assert (heard.text, heard.finish_reason) == ("ABCDEFGHIJ"[:max_tokens], "length")


def test_e15_with_a_real_model_the_text_is_cut_before_the_first_match(make_engine, tiny_model, tmp_path):
    engine = make_engine(model=str(with_tokenizer(tiny_model(), tmp_path / "speaks")))
    whole = ask(engine, PROMPT[:20], greedy(40)).samples[0]
    stop = whole.text[10:13]
    request_id = engine.submit(PROMPT[:20], greedy(40, stop=[stop]))
    deltas = all_steps(engine)
    text = "".join(delta.text for delta in deltas)
    assert text == whole.text[: whole.text.index(stop)]
    assert deltas[-1].finish_reason == "stop"
    assert ids_of(deltas, request_id) == whole.token_ids[: len(ids_of(deltas, request_id))]


# E16: characters of several bytes


@pytest.mark.parametrize("text", ["👩‍👩‍👧", "日本語のテキスト", "naïve café", "a👩‍👩‍👧b日c"])
def test_e16_no_broken_character_while_streaming(say, text):
    shown: list[str] = []
    heard = say(spelled(text), shown)
    assert all("\ufffd" not in part for part in shown)
    assert "".join(shown) == heard.text == text


def test_e16_a_reply_cut_in_the_middle_of_a_character_shows_no_broken_one(say):
    heard = say(spelled("a日本"), max_tokens=5)  # the last character lacks two of its three bytes
    assert (heard.text, heard.finish_reason) == ("a日", "length")
    assert heard.token_ids == spelled("a日本")[:5]


def test_e16_the_deltas_joined_are_the_final_text(make_engine, tiny_model, tmp_path):
    engine = make_engine(model=str(with_tokenizer(tiny_model(), tmp_path / "speaks")))
    request_id = engine.submit(PROMPT[:20], drawn(60, temperature=1.5, seed=1))
    deltas = all_steps(engine)
    [sample] = ask(engine, PROMPT[:20], drawn(60, temperature=1.5, seed=1)).samples
    assert "".join(delta.text for delta in deltas) == sample.text
    assert ids_of(deltas, request_id) == sample.token_ids


# E17: one BOS


def test_e17_a_template_that_adds_bos_and_a_tokenizer_that_does_too_make_one(make_engine, tiny_model, tmp_path):
    engine = make_engine(model=str(with_tokenizer(tiny_model(), tmp_path / "speaks")))
    token_ids = engine.encode_chat([ChatMessage("user", "hi")])
    assert token_ids == [BOS, *spelled("user:hi"), END, *spelled("assistant:")]
    assert engine.generate(["hi"], greedy(1))[0].num_prompt_tokens == 3  # BOS and two bytes


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


# E19: stop


@pytest.mark.parametrize("n", [1, 3])
def test_e19_stopped_at_token_40_the_chat_goes_on_where_it_was(make_engine, n):
    engine = make_engine()
    request_id = engine.submit(PROMPT[:20], drawn(200, temperature=1.0, seed=6, n=n))
    deltas = steps_until(engine, request_id, 20 + 40)
    assert engine.abort(request_id)
    assert engine.snapshot().num_referenced == 0
    deltas += engine.step()
    assert [delta.finish_reason for delta in deltas if delta.finish_reason] == ["abort"] * n
    for sample in range(n):
        assert len(ids_of(deltas, request_id, sample)) == 40
    assert not engine.has_unfinished
    history = [*PROMPT[:20], *ids_of(deltas, request_id, n - 1), 9, 9]
    output = ask(engine, history, greedy(5))
    assert output.num_cached_tokens == 20 + 39
    assert output.samples[0].token_ids == reply_ids(make_engine(), history, greedy(5))


# E21: NaN in every unused slot


@pytest.mark.parametrize("kernels", KERNELS)
@pytest.mark.parametrize("family", ["llama", "mistral"])
@pytest.mark.parametrize("length", [1, 15, 16, 17, 31, 32, 33])
def test_e21_unused_slots_full_of_nan_change_nothing(make_engine, tiny_model, kernels, family, length):
    engine = make_engine(family, kernels=kernels)
    engine._open_core()._runner._kv_cache.pool.fill_(math.nan)
    [sample] = ask(engine, PROMPT[:length], greedy(3, logprobs=0)).samples
    assert sample.token_ids == transformers_reply(transformers_model(tiny_model(family)), PROMPT[:length], 3)
    assert all(math.isfinite(logprobs.logprob) for logprobs in sample.logprobs)


@pytest.mark.parametrize("kernels", KERNELS)
def test_e21_together_in_one_batch_too(make_engine, tiny_model, kernels):
    engine = make_engine(kernels=kernels)
    engine._open_core()._runner._kv_cache.pool.fill_(math.nan)
    prompts = [PROMPT[i * 40 : i * 40 + length] for i, length in enumerate((1, 15, 16, 17, 31, 32, 33))]
    outputs = engine.generate(prompts, greedy(3))
    model = transformers_model(tiny_model())
    assert [output.samples[0].token_ids for output in outputs] == [transformers_reply(model, p, 3) for p in prompts]


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
