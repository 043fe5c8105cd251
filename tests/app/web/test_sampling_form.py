"""What the settings' components hold, as sampling parameters; anything may come from a program instead of a page."""

import math
from dataclasses import fields, replace

import pytest

from paged_chat.app.web.handlers import SamplingForm
from paged_chat.engine.errors import InvalidParameter
from paged_chat.engine.request import SamplingParams

FORM = SamplingForm.of(SamplingParams(temperature=0.7, top_k=40, n=2, seed=7, stop=("a", "b")))


def test_there_and_back():
    assert FORM.over(SamplingParams()) == SamplingParams(temperature=0.7, top_k=40, n=2, seed=7, stop=("a", "b"))
    assert replace(FORM, top_k=40.0, max_tokens=None).over(SamplingParams()).top_k == 40


@pytest.mark.parametrize(
    "name", [field.name for field in fields(SamplingForm) if field.name not in ("stop", "early_stopping")]
)
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -1000, 10**400, "1", [1], {}, True, 1j])
def test_a_value_that_no_component_holds_is_refused_by_its_name(name, value):
    with pytest.raises(InvalidParameter):
        replace(FORM, **{name: value}).over(SamplingParams())
