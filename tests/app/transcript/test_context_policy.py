"""Where a chat that is too long may begin."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from paged_chat.app.transcript.context_policy import cuts, reply_room

SIZES = st.lists(st.integers(0, 50), min_size=1, max_size=40)


def test_cuts_lie_a_step_apart_and_the_last_turn_is_the_last() -> None:
    assert list(cuts([10] * 10, 30)) == [0, 3, 6, 9]
    assert list(cuts([10] * 11, 30)) == [0, 3, 6, 9, 10]
    assert list(cuts([10, 100, 10, 10], 30)) == [0, 2, 3]
    assert list(cuts([0, 0, 0], 1)) == [0, 2]
    assert list(cuts([7], 30)) == [0]


@given(sizes=SIZES, more=SIZES, step=st.integers(1, 100))
def test_a_chat_that_goes_on_keeps_its_cuts(sizes: list[int], more: list[int], step: int) -> None:
    *before, last = cuts(sizes, step)
    after = list(cuts([*sizes, *more], step))
    assert after[: len(before)] == before
    # The last turn was only there because nothing comes after it.
    assert last in after or last == len(sizes) - 1


@given(sizes=SIZES, step=st.integers(1, 100))
def test_between_two_cuts_lies_a_step(sizes: list[int], step: int) -> None:
    places = list(cuts(sizes, step))
    assert places == sorted(set(places))
    assert all(sum(sizes[a:b]) >= step for a, b in pairwise(places[:-1]))
    assert (places[0], places[-1]) == (0, len(sizes) - 1)


def test_a_reply_gets_what_it_wants_up_to_a_quarter() -> None:
    assert reply_room(512, 8192) == 512
    assert reply_room(5000, 8192) == reply_room(None, 8192) == 2048
    assert reply_room(None, 3) == reply_room(None, -10) == 1
