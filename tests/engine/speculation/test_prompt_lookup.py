"""What stands in a text already, found as it grows."""

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from paged_chat.engine.speculation.prompt_lookup import MAX_COMPARED, MAX_PLACES, MIN_MATCH, PromptLookup


def reading(*token_ids: int) -> PromptLookup:
    lookup = PromptLookup()
    lookup.extend(token_ids)
    return lookup


def test_what_stood_behind_the_same_tokens_is_the_guess():
    lookup = reading(1, 2, 3, 4, 5, 6, 9, 2, 3)
    assert lookup.match_len == 2
    assert lookup.guess(3) == [4, 5, 6]


def test_one_token_alone_makes_no_match():
    assert reading(1, 2, 3, 4, 9, 3).match_len == 0
    assert reading(1, 2, 3, 4, 9, 3).guess(4) == []


@pytest.mark.parametrize("text", [(), (7,), (7, 7), (7, 8)])
def test_a_text_too_short_to_repeat_itself_has_no_guess(text):
    assert reading(*text).guess(4) == []


def test_of_two_places_the_one_that_agrees_longer_is_taken_though_it_is_older():
    lookup = reading(1, 2, 3, 40, 8, 2, 3, 50, 1, 2, 3)
    assert lookup.match_len == 3
    assert lookup.guess(1) == [40]


def test_of_places_that_agree_alike_the_latest_is_taken():
    lookup = reading(1, 2, 40, 7, 1, 2, 50, 8, 1, 2)
    assert lookup.guess(1) == [50]


def test_a_match_grows_with_every_token_that_was_guessed_and_ends_with_one_that_was_not():
    lookup = reading(1, 2, 3, 4, 5, 9, 1, 2)
    lengths = []
    for token_id in (3, 4, 6):
        lookup.extend((token_id,))
        lengths.append(lookup.match_len)
    assert lengths == [3, 4, 0]


def test_a_period_goes_on():
    # The latest place where (5, 6) ended is two tokens back: what follows it is the end itself.
    lookup = reading(1, 5, 6, 5, 6)
    assert lookup.guess(5) == [5, 6, 5, 6, 5]
    assert reading(3, 3, 3).guess(4) == [3, 3, 3, 3]


def test_only_the_latest_places_are_compared_where_a_pair_is_everywhere():
    oldest = [1, 2, 3, 4]  # the only place where 3, 4 stands behind 1, 2
    text = [*oldest, 99]
    for number in range(MAX_PLACES):
        text += [3, 4, 50 + number]
    lookup = reading(*text, *oldest)
    assert (lookup.match_len, lookup.guess(1)) == (MIN_MATCH, [50 + MAX_PLACES - 1])


def test_a_long_match_is_compared_up_to_a_limit_and_then_grows_beyond_it():
    text = list(range(100, 200))
    lookup = reading(*text, 7, *text[:50])
    assert lookup.match_len == MAX_COMPARED
    assert lookup.guess(2) == text[50:52]
    lookup.extend(text[50:60])
    assert lookup.match_len == MAX_COMPARED + 10


@settings(deadline=None)
@given(text=st.lists(st.integers(0, 2), max_size=25), cuts=st.sets(st.integers(0, 25)))
def test_it_finds_what_a_search_of_the_whole_text_finds(text, cuts):
    """However the text comes. Once a pair stands at more places than are compared, the two may differ."""
    lookup = PromptLookup()
    for start, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(text)], strict=True):
        lookup.extend(text[start:end])
        read = text[: max(start, end)]
        agreeing = [common(read, end) for end in range(len(read))]
        longest = max(agreeing, default=0)
        if [length >= MIN_MATCH for length in agreeing].count(True) > MAX_PLACES:
            return
        if longest < MIN_MATCH:
            assert lookup.match_len == 0
        else:
            assert lookup.match_len == longest
            source = max(place for place, length in enumerate(agreeing) if length == longest)
            assert lookup.guess(1) == [read[source]]


def common(text: list[int], end: int) -> int:
    """How many of the tokens before a place equal the text's last ones."""
    length = 0
    while length < end and text[end - 1 - length] == text[-1 - length]:
        length += 1
    return length
