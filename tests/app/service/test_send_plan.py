"""What a plan says in words."""

import pytest

from paged_chat.app.service.expected_time import about
from paged_chat.app.service.model_notice import ModelNotice
from paged_chat.app.service.send_plan import SendPlan
from paged_chat.engine import TimeEstimate


@pytest.mark.parametrize(
    ("num_reused", "num_computed", "num_left_out", "words"),
    [
        (37 * 16 + 3, 12, 3, "reuses 37 blocks and 3 tokens, computes 12 tokens; 3 old turns are left out"),
        (17, 1, 1, "reuses 1 block and 1 token, computes 1 token; 1 old turn is left out"),
        (2000 * 16, 1, 0, "reuses 2,000 blocks, computes 1 token"),
        (15, 2, 0, "reuses 15 tokens, computes 2 tokens"),
        (0, 1234, 0, "reuses nothing, computes 1,234 tokens"),
    ],
)
def test_a_plan_in_words(num_reused, num_computed, num_left_out, words):
    plan = SendPlan(
        num_prompt_tokens=num_reused + num_computed,
        num_reused_tokens=num_reused,
        window=40_000,
        num_left_out_turns=num_left_out,
    )
    assert str(plan) == words
    assert plan.num_computed_tokens == num_computed


def test_a_plan_says_when_another_model_answers():
    notice = ModelNotice(named="qwen3-0.6b", answering="smollm2-135m")
    plan = SendPlan(num_prompt_tokens=28, num_reused_tokens=16, window=8192, model_notice=notice)
    assert str(plan) == (
        "reuses 1 block, computes 12 tokens; smollm2-135m answers, not qwen3-0.6b, which this chat names"
    )


def test_a_plan_says_how_long_the_first_token_takes_once_that_is_known():
    plan = SendPlan(
        num_prompt_tokens=616,
        num_reused_tokens=592,
        window=8192,
        expected_ttft=TimeEstimate(0.41, 0.03),
        num_left_out_turns=1,
    )
    assert str(plan) == ("reuses 37 blocks, computes 24 tokens, first token in ~0.4 s; 1 old turn is left out")


@pytest.mark.parametrize(
    ("seconds", "error_s", "words"),
    [
        (0.0042, 0.0, "~10 ms"),
        (0.044, 0.004, "~40 ms"),
        (0.094, 0.001, "~90 ms"),
        (0.096, 0.001, "~0.1 s"),
        (0.44, 0.1, "~0.4 s"),
        (9.94, 0.5, "~9.9 s"),
        (12.4, 1.0, "~12 s"),
        # Where the measurements differ by a third and more, both ends are said.
        (1.7, 0.7, "1.0 to 2.4 s"),
        (0.05, 0.02, "30 to 70 ms"),
        (0.1, 0.04, "~0.1 s"),
        (14.0, 6.0, "8.0 to 20 s"),
    ],
)
def test_an_expected_time_says_no_more_than_is_known(seconds, error_s, words):
    assert about(TimeEstimate(seconds, error_s)) == words
