"""What beams hold together, what is free with the step that drops one, and how a search ends."""

from dataclasses import replace

import pytest
import torch

from beam_oracle import assert_found, beams, expect, found
from paged_chat.engine.events import EventKind
from paged_chat.engine.request import BlockUse, SamplingParams
from slot_runner import Listener, SlotRunner, ask, ask_all, entry, make_core, prompt
from tiny_tokenizer import BOS, spelled, tokenizer_in

# What beams hold


def chain(vocab_size: int, likely: dict[int, tuple[tuple[int, float], ...]], first: int | None = None):
    """Logits that depend on the last token alone; after one that isn't in `likely`, or has none, all are equal.

    first: the one token after any other that isn't in `likely`.
    """

    def logits_of(history):
        before = b"".join(history[:-1])
        last = next(token_id for token_id in range(vocab_size) if entry([before], token_id) == history[-1])
        following = likely.get(last, () if first is None else ((first, 2.0),))
        logits = torch.full((vocab_size,), -20.0 if following else 0.0)
        for token_id, logit in following:
            logits[token_id] = logit
        return logits

    return logits_of


def test_a_dropped_beam_frees_its_blocks_in_the_same_step():
    """Blocks of one token, and a model in which the second beam's ways beat the first one's: both new beams go on
    from it, so the first one's block is free with the step that drops it, and the shared prompt's are not.
    """

    likely = {8: ((1, 1.0), (2, 0.9)), 1: (), 2: ((3, 1.0), (4, 0.9))}  # after 1 all tokens are as good
    core = make_core(SlotRunner(1, chain(50, likely)), block_size=1, num_blocks=16)
    request_id = core.submit([7, 8], beams(2, 4))
    core.step()  # the prompt: beams [1] and [2]
    assert [sequence.token_ids[2:] for sequence in core._requests[request_id].sequences] == [[1], [2]]
    before = core.snapshot()
    assert (before.num_referenced, before.num_shared) == (2, 2)
    core.step()  # both are computed, each in a block of its own; [2, 3] and [2, 4] win
    first, second = core._requests[request_id].sequences
    assert [first.token_ids[2:], second.token_ids[2:]] == [[2, 3], [2, 4]]
    after = core.snapshot()
    # The prompt's two blocks and that of token 2, all shared; that of token 1 is let go, findable for a while.
    assert (after.num_referenced, after.num_shared, after.num_cached) == (3, 3, 1)
    assert after.frees - before.frees == 1
    kinds = EventKind
    assert [(event.kind, event.block_id) for event in core.events.since(before.num_events)] == [
        (kinds.ALLOCATED, 3),
        (kinds.ALLOCATED, 4),
        (kinds.PUBLISHED, 3),
        (kinds.PUBLISHED, 4),
        (kinds.FREED, 3),
        (kinds.SHARED, 1),
        (kinds.SHARED, 2),
        (kinds.SHARED, 4),
    ]
    assert first.block_table == second.block_table


def test_beams_share_their_prompt_and_say_how_much_they_share():
    core = make_core(num_blocks=64)
    listener = Listener(core)
    request_id = core.submit(prompt(100), beams(4, 12))
    listener.step()
    assert core.snapshot().num_shared == 7  # the prompt's six full blocks, and its tail until somebody writes on
    listener.run()
    use = listener.reply(request_id).stats.block_use
    # 6 full blocks of the prompt; tails of 4 prompt tokens and up to 11 of a beam, one a beam at most.
    assert use == BlockUse(num_blocks=10, num_blocks_alone=28, num_sequences=4)


def test_the_second_search_reuses_the_prompt_of_the_first():
    core = make_core()
    first, second = (ask_all(core, prompt(40), beams(3, 6)) for _ in range(2))
    assert found(first) == found(second)
    assert (first[0].stats.num_cached_tokens, second[0].stats.num_cached_tokens) == (0, 39)


def test_the_next_turn_reuses_the_best_reply_to_its_end():
    core = make_core()
    [best, *_] = ask_all(core, prompt(20), beams(3, 9))
    after = ask(core, [*prompt(20), *best.token_ids, 1, 2], SamplingParams(max_tokens=1))
    assert after.stats.num_cached_tokens == 28  # all but the last token of the reply, which was never computed


def test_a_budget_smaller_than_the_beams_makes_them_wait_for_each_other():
    runner = SlotRunner()
    params = beams(4, 5)
    replies = ask_all(make_core(runner, max_num_batched_tokens=3), prompt(5), params)
    assert runner.steps == [[3], [2], *[[1, 1, 1], [1]] * 4]
    assert_found(replies, prompt(5), params)


def test_a_pool_too_small_for_all_beams_at_once_serves_them_in_turns():
    core = make_core(block_size=4, num_blocks=5)
    params = beams(4, 9)
    replies = ask_all(core, prompt(7), params)
    assert_found(replies, prompt(7), params)
    assert core.snapshot().preemptions > 0
    assert replies[0].stats.num_preemptions > 0


# Ends


def test_stopped_midway_a_search_gives_what_it_has_best_first():
    core = make_core()
    listener = Listener(core)
    request_id = core.submit(prompt(20), beams(3, 30))
    for _ in range(6):
        assert listener.step() == []
    [preview] = core.beam_previews()
    assert core.abort(request_id, 1) is False  # its replies haven't parted
    assert core.abort(request_id)
    listener.run()
    replies = [listener.reply(request_id, sample) for sample in range(3)]
    assert [(len(reply.token_ids), reply.finish_reason) for reply in replies] == [(6, "abort")] * 3
    assert tuple(replies[0].token_ids) == preview.token_ids == expect(prompt(20), beams(3, 6))[0][0]
    assert replies[0].score == preview.score
    assert (preview.num_beams, core.snapshot().num_referenced) == (3, 0)


def test_stopped_before_its_first_token_a_search_ends_with_empty_replies():
    core = make_core()
    listener = Listener(core)
    request_id = core.submit(prompt(20), beams(2, 5))
    assert core.beam_previews() == []
    core.abort(request_id)
    listener.run()
    assert [(r.token_ids, r.score, r.finish_reason) for r in (listener.reply(request_id, i) for i in range(2))] == [
        ([], None, "abort")
    ] * 2


def test_a_step_that_fails_again_and_again_ends_the_search_and_frees_its_blocks():
    runner = SlotRunner()
    core = make_core(runner)
    listener = Listener(core)
    request_id = core.submit(prompt(20), beams(2, 9))
    listener.step()
    runner.failures += [RuntimeError("out of luck")] * 2
    listener.run()
    assert [listener.reply(request_id, sample).finish_reason for sample in range(2)] == ["error", "error"]
    assert core.snapshot().num_referenced == 0


def test_a_step_that_fails_once_changes_nothing_that_a_search_finds():
    runner = SlotRunner()
    core = make_core(runner)
    listener = Listener(core)
    request_id = core.submit(prompt(20), beams(3, 9))
    for _ in range(2):
        listener.step()
        runner.failures.append(RuntimeError("a bad step"))
        for _ in range(4):  # it fails, and each of the three beams is computed alone
            listener.step()
    listener.run()
    found = [listener.reply(request_id, sample) for sample in range(3)]
    assert [tuple(reply.token_ids) for reply in found] == [ids for ids, _ in expect(prompt(20), beams(3, 9))]


def test_replies_that_begin_with_given_tokens_are_searched_behind_them():
    core = make_core()
    listener = Listener(core)
    request_id = core.submit(prompt(20), beams(2, 8), reply_start=[5, 6, 7])
    listener.run()
    expected = expect([*prompt(20), 5, 6, 7], beams(2, 5))
    replies = [listener.reply(request_id, sample).token_ids for sample in range(2)]
    assert replies == [[5, 6, 7, *ids] for ids, _ in expected]


def test_log_probabilities_of_each_token_add_up_to_the_score():
    [best, _] = ask_all(make_core(), prompt(9), replace(beams(2, 7), logprobs=2, length_penalty=0.0))
    assert [logprobs.token_id for logprobs in best.logprobs] == best.token_ids
    assert sum(logprobs.logprob for logprobs in best.logprobs) == pytest.approx(best.score, abs=1e-4)
    assert all(len(logprobs.top) == 2 for logprobs in best.logprobs)


def test_a_stop_string_ends_a_beam_like_an_end_token(tmp_path):
    """The model goes on with b after a, and with c nearly as gladly; "ab" is a stop string."""
    tokenizer = tokenizer_in(tmp_path)
    a, b, c, d = spelled("abcd")
    likely = {a: ((b, 2.0), (c, 1.9)), c: ((d, 2.0),), d: ((d, 2.0),)}
    core = make_core(SlotRunner(16, chain(320, likely, first=a)), tokenizer=tokenizer, vocab_size=320)
    replies = ask_all(core, [BOS], beams(2, 5, stop="ab"))
    assert [(reply.text, reply.token_ids, reply.finish_reason) for reply in replies] == [
        ("acddd", [a, c, d, d, d], "length"),
        ("", [a, b], "stop"),
    ]
    # Without it both go on.
    assert ask_all(core, [BOS], beams(2, 2))[0].text == "ab"
