"""Naming what has happened to a prompt."""

import pytest

from paged_chat.app.transcript.divergence import Divergence, first_difference, how_rewritten


def test_the_first_difference_is_where_both_have_a_token() -> None:
    assert first_difference([1, 2, 3], [1, 2, 4]) == 2
    assert first_difference([1, 2], [1, 2, 3]) is None
    assert first_difference([1, 2, 3], [1, 2]) is None
    assert first_difference([], [1]) is None


@pytest.mark.parametrize(
    ("sent", "now", "cause"),
    [
        ("hello there", "hello there\nuser: again", "reply encoded anew"),
        ("  hello\n\n", "hello\nuser: again", "text trimmed"),
        ("<think>\nhm\n</think>\n\nhello", "hello\nuser: again", "thinking dropped"),
        ("hm</think>hello", "</think>\n\nhello", "template changed history"),
        ("hello", "Be kind. hello", "template changed history"),
        # A reply that was cut inside a character.
        ("hello \ufffd", "hello \nuser: again", "reply encoded anew"),
    ],
)
def test_what_a_template_did_is_told_by_the_texts(sent: str, now: str, cause: str) -> None:
    def decode(token_ids: object) -> str:
        return "".join(map(chr, token_ids))  # type: ignore[call-overload]

    assert how_rewritten(decode, [ord(c) for c in sent], [ord(c) for c in now]) == cause


def test_a_divergence_reads_as_a_sentence() -> None:
    divergence = Divergence(1233, 7, 8, "system prompt edited")
    assert str(divergence) == "from token 1,234 on the prompt is new: the system prompt was edited"
