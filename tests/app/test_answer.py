"""One prompt driven to its end, stopped, or failing."""

import os
import signal

import pytest

from paged_chat.app.answer import run_request
from paged_chat.app.commands.interrupt import stop_on_interrupt
from paged_chat.engine.errors import StepFailed
from paged_chat.engine.request import SamplingParams
from scripted_engine import ScriptedEngine


@pytest.fixture
def engine():
    return ScriptedEngine()


def test_deltas_join_to_the_reply(engine):
    engine.enqueue("the capital is Paris")
    shown = []
    answer = run_request(engine, [1, 2, 3], SamplingParams(), on_delta=shown.append)
    [reply] = answer.replies
    assert reply.text == "".join(delta.text for delta in shown) == "the capital is Paris"
    assert reply.token_ids == [100, 101, 102, 103]
    assert reply.finish_reason == "stop"
    assert (answer.num_prompt_tokens, answer.num_cached_tokens, answer.num_completion_tokens) == (3, 0, 4)
    assert 0 <= answer.ttft_ms <= answer.total_ms
    assert answer.decode_tokens_per_s > 0


def test_replies_that_stream_side_by_side_are_told_apart(engine):
    engine.enqueue("one", "two words", "three words here")
    answer = run_request(engine, [1], SamplingParams(n=3))
    assert [reply.text for reply in answer.replies] == ["one", "two words", "three words here"]
    assert answer.num_completion_tokens == 6


def test_a_reply_of_one_token_has_no_rate(engine):
    engine.enqueue("yes")
    assert run_request(engine, [1], SamplingParams()).decode_tokens_per_s is None


def test_stopped_replies_keep_what_they_have(engine):
    engine.enqueue("a b c d e")
    shown = []
    answer = run_request(engine, [1, 2], SamplingParams(), on_delta=shown.append, should_stop=lambda: len(shown) == 2)
    assert (answer.replies[0].text, answer.replies[0].finish_reason) == ("a b", "abort")
    assert engine.aborted == ["request-1"]
    assert not engine.has_unfinished


def test_a_failed_step_raises_and_leaves_nothing_running(engine):
    engine.enqueue_failure("a b", error="the device is gone")
    with pytest.raises(StepFailed, match="the device is gone"):
        run_request(engine, [1], SamplingParams())
    assert not engine.has_unfinished


def test_an_exception_on_the_way_gives_the_blocks_back(engine):
    engine.enqueue("a b c")

    def fail(delta):
        raise BrokenPipeError

    with pytest.raises(BrokenPipeError):
        run_request(engine, [1], SamplingParams(), on_delta=fail)
    assert engine.aborted == ["request-1"]


def test_the_first_interrupt_sets_the_flag_and_the_second_raises():
    with stop_on_interrupt() as stopped:
        assert not stopped()
        os.kill(os.getpid(), signal.SIGINT)
        assert stopped()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_wish_to_end_sets_the_flag_and_says_so():
    with stop_on_interrupt() as stopped:
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopped()
        assert stopped.must_end
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_where_interrupts_are_ignored_they_stay_so():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with stop_on_interrupt() as stopped:
        os.kill(os.getpid(), signal.SIGINT)
        assert not stopped()
