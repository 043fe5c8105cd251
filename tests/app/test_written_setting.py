"""Settings as people write them."""

import pytest

from paged_chat.app.written_setting import read_setting
from paged_chat.engine.errors import InvalidParameter


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("temperature", "0,7", 0.7),
        ("n", "4", 4),
        ("seed", "-", None),
        ("max_tokens", "off", None),
        ("top_p", "1", 1.0),
        ("early_stopping", "True", True),
        ("early_stopping", "never", "never"),
        ("stop", "-", ()),
        ("stop", "none", ("none",)),
        ("stop", "first stop\n\n###", ("first stop", "###")),
    ],
)
def test_values(name, text, value):
    assert read_setting(name, text) == value


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("n", "four", "n must be a whole number, not 'four'"),
        ("temperature", "warm", "temperature must be a number, not 'warm'"),
        ("n", "-", "n must be a whole number, not '-'"),
        ("seed", "1.5", "seed must be a whole number, not '1.5'"),
        ("top_k", "none", "top k must be a whole number, not 'none'"),
        ("early_stopping", "soon", "early stopping must be true, false or never, not 'soon'"),
    ],
)
def test_what_is_no_value_is_refused_with_its_name(name, text, words):
    with pytest.raises(InvalidParameter) as refused:
        read_setting(name, text)
    assert str(refused.value) == words
