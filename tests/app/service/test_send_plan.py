"""What a plan says in words."""

import pytest

from paged_chat.app.service.model_notice import ModelNotice
from paged_chat.app.service.send_plan import SendPlan


@pytest.mark.parametrize(
    ("num_blocks", "num_computed", "num_left_out", "words"),
    [
        (37, 12, 3, "reuses 37 blocks, computes 12 tokens; 3 old turns are left out"),
        (1, 1, 1, "reuses 1 block, computes 1 token; 1 old turn is left out"),
        (0, 1234, 0, "reuses 0 blocks, computes 1,234 tokens"),
    ],
)
def test_a_plan_in_words(num_blocks, num_computed, num_left_out, words):
    plan = SendPlan(
        num_prompt_tokens=num_blocks * 16 + 5 + num_computed,
        num_reused_tokens=num_blocks * 16 + 5,
        num_reused_blocks=num_blocks,
        window=8192,
        num_left_out_turns=num_left_out,
    )
    assert str(plan) == words
    assert plan.num_computed_tokens == num_computed
    assert plan.num_free_tokens == 8192 - plan.num_prompt_tokens


def test_a_plan_says_when_another_model_answers():
    notice = ModelNotice(named="qwen3-0.6b", answering="smollm2-135m")
    plan = SendPlan(num_prompt_tokens=28, num_reused_tokens=16, num_reused_blocks=1, window=8192, model_notice=notice)
    assert str(plan) == (
        "reuses 1 block, computes 12 tokens; smollm2-135m answers, not qwen3-0.6b, which this chat names"
    )
