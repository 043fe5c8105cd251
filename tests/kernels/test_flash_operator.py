"""An operator of torch's that has only a private name: where it is gone or changed, a public one serves."""

import pytest
import torch

from paged_chat.kernels import choose_backend, reference
from paged_chat.kernels.cpu import flash_operator
from paged_chat.kernels.cpu.flash_operator import NAME, find_flash, why_no_flash

OPERATORS = torch.ops.aten


class Operators:
    """torch's operators, with another one under that name or none."""

    def __init__(self, operator=None):
        if operator is not None:
            setattr(self, NAME, operator)


@pytest.fixture
def with_operator(monkeypatch):
    def replace(operator=None):
        monkeypatch.setattr(flash_operator.torch.ops, "aten", Operators(operator))
        flash_operator._try_flash.cache_clear()

    yield replace
    flash_operator._try_flash.cache_clear()


def renamed_argument(query, keys, values, dropout_p, is_causal, *, softmax_scale):
    raise AssertionError("never gets here")


def base_2(query, keys, values, dropout_p, is_causal, *, scale):
    output, log_sum_exp = getattr(OPERATORS, NAME)(query, keys, values, dropout_p, is_causal, scale=scale)
    return output, log_sum_exp * 1.4427


def one_result(*arguments, **options):
    return getattr(OPERATORS, NAME)(*arguments, **options)[0]


def test_this_version_of_torch_has_it():
    assert why_no_flash() is None
    assert find_flash() is not None


@pytest.mark.parametrize(
    ("operator", "why"),
    [
        (None, f"has no {NAME}"),
        (renamed_argument, "can't be called: "),
        (one_result, "can't be called: "),
        (base_2, "gives other results than it did"),
    ],
)
def test_one_that_is_gone_or_changed_is_not_used(with_operator, operator, why):
    with_operator(operator)
    assert find_flash() is None
    assert why in why_no_flash()
    assert torch.__version__ in why_no_flash()


def test_long_prompts_are_attended_to_without_it(with_operator, page_for, random, close):
    """200 queries over 300 tokens would take it; and the same with it, so both ways are the reference's."""
    query = random(200, 6, 64)
    truth = page_for(reference, [300]).prefill(query, [200])
    contexts = page_for(choose_backend("cpu", torch.device("cpu")), [300])
    close(contexts.prefill(query, [200]), truth)
    with_operator(None)
    close(contexts.prefill(query, [200]), truth)
