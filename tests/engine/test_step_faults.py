"""Steps that raise, and steps that come to NaN or infinity: who is to blame fails, everyone else goes on."""

import logging

import hypothesis.strategies as st
import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings

from foretelling import ForetellingDrafter
from paged_chat.engine import PagedChatError, SamplingParams
from paged_chat.engine.batch import build_batch
from paged_chat.engine.cache.block_hash import BlockHasher
from paged_chat.engine.numeric_fault import first_faulty_layer
from paged_chat.engine.sequence import Sequence
from slot_runner import Listener, SlotRunner, ask, greedy, make_core, reply_to

RAISES, NAN = 48, 49  # tokens that no step survives, and that lead to no numbers


@pytest.fixture(autouse=True)
def quiet(caplog):
    caplog.set_level(logging.CRITICAL, "paged_chat.engine.step_faults")


@pytest.fixture
def runner() -> SlotRunner:
    runner = SlotRunner()
    runner.raises_at, runner.nan_at = RAISES, NAN
    return runner


def ends_of(listener: Listener, request_ids: list[str]) -> list[str | None]:
    return [listener.reply(request_id).finish_reason for request_id in request_ids]


# A step that raises


def test_of_three_in_a_step_that_raises_only_the_one_to_blame_fails(runner):
    core = make_core(runner)
    listener = Listener(core)
    prompts = [range(20), [*range(20, 40), RAISES], range(5, 30)]
    requests = [core.submit(list(prompt), greedy(6)) for prompt in prompts]
    listener.run()
    assert ends_of(listener, requests) == ["length", "error", "length"]
    assert listener.reply(requests[1]).error == (
        "the step that computed this request failed: RuntimeError: token 48 can't be computed"
    )
    for number in (0, 2):
        assert tuple(listener.reply(requests[number]).token_ids) == reply_to(prompts[number], 6)
    # All together, then each alone, then the two that are left.
    assert runner.steps[:5] == [[20, 21, 25], [20], [21], [25], [1, 1]]
    assert core.snapshot().num_referenced == 0


def test_what_was_cached_before_the_fault_stays_cached(runner):
    core = make_core(runner)
    ask(core, range(40), greedy(1))
    listener = Listener(core)
    good, bad = core.submit([*range(40), 1, 2], greedy(2)), core.submit([*range(40), RAISES], greedy(2))
    listener.run()
    assert ends_of(listener, [good, bad]) == ["length", "error"]
    assert listener.reply(good).stats.num_cached_tokens == 40
    assert core.probe([*range(40), 3]).num_cached_tokens == 40


def test_only_the_reply_that_comes_to_what_cannot_be_computed_ends_of_several(runner):
    params = SamplingParams(temperature=1.0, max_tokens=60, n=4, seed=3)
    core = make_core()
    listener = Listener(core)
    undisturbed = core.submit(list(range(20)), params)
    listener.run()
    expected = [listener.reply(undisturbed, sample).token_ids for sample in range(4)]
    assert {RAISES in ids for ids in expected} == {True, False}
    runner.nan_at = None
    core = make_core(runner)
    listener = Listener(core)
    request_id = core.submit(list(range(20)), params)
    listener.run()
    for sample, ids in enumerate(expected):
        heard = listener.reply(request_id, sample)
        told = ids[: ids.index(RAISES) + 1] if RAISES in ids[:-1] else ids
        assert (heard.token_ids, heard.finish_reason) == (told, "error" if RAISES in ids[:-1] else "length")


def test_those_who_come_meanwhile_wait_until_the_suspects_are_through(runner):
    core = make_core(runner, num_blocks=5)
    listener = Listener(core)
    first = core.submit([5] * 60, greedy(4))
    runner.failures.append(RuntimeError("a bad step"))
    listener.step()
    second = core.submit([7] * 20, greedy(4))
    listener.run()
    assert runner.steps[:2] == [[60], [60]]
    assert tuple(listener.reply(first).token_ids) == reply_to([5] * 60, 4)
    assert tuple(listener.reply(second).token_ids) == reply_to([7] * 20, 4)


def test_a_suspect_has_every_step_to_itself_however_many_its_prompt_takes(runner):
    core = make_core(runner, max_num_batched_tokens=32)
    listener = Listener(core)
    first = core.submit([5] * 50, greedy(3))
    runner.failures.append(RuntimeError("a bad step"))
    listener.step()
    second = core.submit([7] * 20, greedy(3))
    listener.run()
    assert runner.steps[:4] == [[32], [32], [18], [1, 20]]
    assert tuple(listener.reply(first).token_ids) == reply_to([5] * 50, 3)
    assert tuple(listener.reply(second).token_ids) == reply_to([7] * 20, 3)


def test_what_a_failed_step_may_have_half_written_is_computed_again(runner):
    core = make_core(runner)
    listener = Listener(core)
    request_id = core.submit([5] * 20, greedy(4))
    listener.step()
    listener.step()
    runner.failures.append(RuntimeError("a bad step"))
    listener.run()
    # 22 tokens by then; the step wrote into the block behind the first 16.
    assert runner.steps == [[20], [1], [1], [6], [1]]
    assert tuple(listener.reply(request_id).token_ids) == reply_to([5] * 20, 4)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 2.1 GiB"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.1 GiB"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 2254857830 bytes."),
    ],
)
def test_memory_that_runs_out_in_a_step_is_said_in_words(error):
    runner = SlotRunner()
    runner.failures += [error] * 2
    core = make_core(runner)
    heard = ask(core, range(20), greedy(3))
    assert heard.finish_reason == "error"
    assert heard.error.startswith("memory ran out while this request was computed: close other programs, or give the")
    assert str(error) in heard.error
    assert tuple(ask(core, range(20), greedy(3)).token_ids) == reply_to(range(20), 3)


# NaN and infinity


def test_of_three_in_a_step_with_nan_only_its_own_request_fails_with_the_layer(runner):
    core = make_core(runner)
    listener = Listener(core)
    prompts = [range(20), [*range(20, 36), NAN, *range(20)], range(5, 30)]
    requests = [core.submit(list(prompt), greedy(6)) for prompt in prompts]
    listener.run()
    assert ends_of(listener, requests) == ["length", "error", "length"]
    assert listener.reply(requests[1]).error.startswith(
        "layer 3 of 4 gave numbers that aren't finite (NaN or infinity) for this request: the model's file may be "
    )
    assert tuple(listener.reply(requests[0]).token_ids) == reply_to(prompts[0], 6)
    # Its neighbours lose no step by it.
    assert runner.steps[:3] == [[20, 37, 25], [37], [1, 1]]
    # Nothing of that step is found again, not even the block of 16 tokens before the fault.
    assert core.probe(list(prompts[1])).num_cached_tokens == 0


@pytest.mark.parametrize("place", [0, 15, 16, 31, 32, 39])
def test_a_chunk_with_nan_in_the_middle_of_a_prompt_is_never_published(runner, place):
    core = make_core(runner, max_num_batched_tokens=16)
    prompt = [*range(40), 1]
    prompt[place] = NAN
    heard = ask(core, prompt, greedy(3))
    assert (heard.finish_reason, heard.token_ids) == ("error", [])
    assert core.probe(prompt).num_cached_tokens == place // 16 * 16


def test_a_reply_that_comes_to_nan_keeps_what_it_said_and_a_retry_finds_only_good_blocks(runner):
    prompt = next(p for p in ([i] * 20 for i in range(40)) if NAN in reply_to(p, 30)[:-1])
    place = reply_to(prompt, 30).index(NAN)
    core = make_core(runner)
    heard = ask(core, prompt, greedy(30))
    assert (tuple(heard.token_ids), heard.finish_reason) == (reply_to(prompt, 30)[: place + 1], "error")
    again = ask(core, [*prompt, *heard.token_ids[:-1], 3], greedy(2))
    assert (again.finish_reason, tuple(again.token_ids)) == ("length", reply_to([*prompt, *heard.token_ids[:-1], 3], 2))


def test_numbers_that_were_bad_once_are_computed_again(runner):
    bad = iter([True])

    class OnceBad(SlotRunner):
        def execute(self, batch):
            logits = super().execute(batch)
            return torch.full_like(logits, torch.inf) if next(bad, False) else logits

    core = make_core(OnceBad())
    assert tuple(ask(core, range(20), greedy(4)).token_ids) == reply_to(range(20), 4)


def test_a_search_with_nan_in_a_beam_ends_with_the_layer(runner):
    core = make_core(runner)
    listener = Listener(core)
    request_id = core.submit([1, 2, NAN], SamplingParams(temperature=0.0, beam_width=2, n=2, max_tokens=5))
    listener.run()
    for sample in range(2):
        assert listener.reply(request_id, sample).finish_reason == "error"
        assert "layer 3 of 4" in listener.reply(request_id, sample).error


# All of it at once


@st.composite
def chats(draw: st.DrawFn) -> list[list[int]]:
    """Prompts that continue beginnings of each other; some hold a token that fails."""
    drawn: list[list[int]] = [[]]
    tokens = st.sampled_from((0, 0, 0, 1, 1, 2, RAISES, NAN))
    for _ in range(draw(st.integers(1, 6))):
        base = draw(st.sampled_from(drawn))
        kept = base[: draw(st.integers(0, len(base)))]
        drawn.append((kept + draw(st.lists(tokens, min_size=1, max_size=8)))[:20])
    return drawn[1:]


def what_is_told(prompt: list[int], max_tokens: int) -> tuple[tuple[int, ...], str]:
    """Nothing behind a token that fails: none that a prompt holds, and of a reply its last one is never computed."""
    if {RAISES, NAN} & set(prompt):
        return (), "error"
    reply = reply_to(prompt, max_tokens)
    ends = [place + 1 for place, token_id in enumerate(reply[:-1]) if token_id in (RAISES, NAN)]
    return (reply[: ends[0]], "error") if ends else (reply, "length")


@settings(deadline=None, suppress_health_check=list(HealthCheck), max_examples=80)
@given(data=st.data(), asked=chats())
def test_whatever_fails_beside_it_a_request_gets_what_it_gets_alone(data, asked):
    runner = SlotRunner(2)
    runner.raises_at, runner.nan_at = RAISES, NAN
    drafter = data.draw(st.none() | st.builds(ForetellingDrafter, seed=st.integers(0, 100)))
    core = make_core(
        runner,
        num_blocks=data.draw(st.integers(18, 40)),
        block_size=2,
        max_num_seqs=4,
        max_num_batched_tokens=data.draw(st.sampled_from((3, 8, 64))),
        hasher=data.draw(st.sampled_from((BlockHasher(), BlockHasher(bits=8)))),
        drafter=drafter,
    )
    listener = Listener(core)
    submitted = {}
    for prompt in asked:
        own = greedy(data.draw(st.integers(1, 10)), n=data.draw(st.integers(1, 2)))
        submitted[core.submit(prompt, own)] = (prompt, own)
        for _ in range(data.draw(st.integers(0, 3), label="steps")):
            listener.step()
        if data.draw(st.booleans(), label="a bad step"):
            runner.failures.append(RuntimeError("a bad step"))
            listener.step()
            runner.failures.clear()
    listener.run()
    for request_id, (prompt, own) in submitted.items():
        for sample in range(own.n):
            heard = listener.reply(request_id, sample)
            ids, reason = what_is_told(prompt, own.max_tokens)
            if "a bad step" in (heard.error or ""):  # the second one in a row, when it was alone
                assert tuple(heard.token_ids) == ids[: len(heard.token_ids)]
            else:
                assert (tuple(heard.token_ids), heard.finish_reason) == (ids, reason)
    assert core.snapshot().num_referenced == 0
    for block in core.manager.pool.blocks:
        if block.parent is not None:
            slots = range(block.block_id * 2, block.block_id * 2 + len(block.token_ids))
            assert runner.nan_entries.isdisjoint(runner.slots[slot] for slot in slots)


# Which rows of logits tell it


def sequence_of(num_tokens: int, num_computed: int) -> Sequence:
    core = make_core()
    core.submit(list(range(num_tokens)), greedy(5))
    [sequence] = core.scheduler.schedule().num_tokens
    sequence.num_computed_tokens = num_computed
    return sequence


@pytest.mark.parametrize(
    ("window", "rows"), [(None, [9]), (10, [9]), (4, [1, 5, 9]), (9, [0, 9]), (1, list(range(10)))]
)
def test_every_token_of_a_chunk_is_seen_by_a_row_whose_logits_are_looked_at(window, rows):
    decoding, chunk = sequence_of(21, 20), sequence_of(40, 16)
    batch, rows_of = build_batch({decoding: 1, chunk: 10}, (), 16, {decoding: [7, 8]}, window)
    assert batch.logits_rows.tolist() == [0, 1, 2, *(3 + row for row in rows)]
    assert rows_of == {decoding: range(1), chunk: range(3, 3 + len(rows))}


@pytest.mark.parametrize("first_bad", [0, 1, 7, 29, 30, 31])
def test_the_first_faulty_layer_is_found_in_few_runs(first_bad):
    runs = []

    def logits_after(num_layers: int) -> torch.Tensor:
        runs.append(num_layers)
        return torch.tensor([[0.0], [torch.nan if num_layers >= first_bad else 0.0]])

    assert first_faulty_layer(logits_after, 30) == (first_bad if first_bad <= 30 else None)
    assert len(runs) <= 5


# Real models


@pytest.mark.parametrize("weights", ["dense", "int8"])
@pytest.mark.parametrize("length", [3, 60, 300])
def test_a_layer_of_a_real_model_is_named(make_engine, weights, length):
    engine = make_engine(weights=weights, num_blocks=64, overrides={"num_hidden_layers": 4})
    damage(engine, layer=2)
    with pytest.raises(PagedChatError, match=r"^layer 3 of 4 gave numbers that aren't finite"):
        engine.generate([[1 + i % 49 for i in range(length)]], greedy(3))
    assert engine.snapshot().num_cached == 0


def damage(engine, layer: int) -> None:
    decoder = engine.model.decoder
    if hasattr(decoder, "weights"):
        decoder.weights.layers[layer].mlp_norm[3] = torch.inf
    else:
        decoder._weights._norms[1][layer, 3] = np.inf


@pytest.mark.parametrize("weights", ["dense", "int8"])
def test_a_token_that_is_no_number_harms_only_the_request_that_holds_it(make_engine, weights):
    engine = make_engine(weights=weights, num_blocks=64)
    prompts = [[1, 2, 3, 4], [5, 6, 40, 7], [8, 9, 10]]
    before = engine.generate(prompts, greedy(4, ignore_eos=True))
    decoder = engine.model.decoder
    if hasattr(decoder, "weights"):
        embedding = decoder.weights.embedding
        embedding.data = embedding.clone()
        embedding[40] = torch.nan
    else:
        arrays = decoder._weights
        arrays._embedding = arrays._embedding.copy()
        arrays._embedding[40] = 0x7FC0  # NaN in bfloat16
    requests = [engine.submit(prompt, greedy(4, ignore_eos=True), salt="afterwards") for prompt in prompts]
    deltas = []
    while engine.has_unfinished:
        deltas += engine.step()
    errors = {delta.request_id: delta.error for delta in deltas if delta.error}
    assert list(errors) == [requests[1]]
    assert errors[requests[1]].startswith("the model's embedding or output head gave numbers that aren't finite")
    for number in (0, 2):
        ids = [token_id for d in deltas if d.request_id == requests[number] for token_id in d.token_ids]
        assert tuple(ids) == before[number].samples[0].token_ids


def test_a_damaged_layer_of_the_default_model_is_named_on_every_path(default_model):
    from paged_chat.engine import Engine, EngineConfig

    with Engine(EngineConfig(model=default_model, num_blocks=256)) as engine:
        damage(engine, layer=15)
        for length in (3, 20, 200):  # packed, and with matrix tiles exact and fast, where the processor has them
            with pytest.raises(PagedChatError, match=r"^layer 16 of 30 gave numbers that aren't finite"):
                engine.generate([[300 + i for i in range(length)]], greedy(2))
        assert engine.snapshot().num_cached == 0
