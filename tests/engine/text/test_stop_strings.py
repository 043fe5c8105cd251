"""Stop strings that arrive in pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paged_chat.engine.text.stop_strings import StopStrings


def shown_for(stops: list[str], pieces: list[str]) -> list[str]:
    watcher = StopStrings(stops)
    return [watcher.push(piece)[0] for piece in pieces]


def test_no_part_of_a_stop_string_is_shown_while_it_arrives_token_by_token() -> None:
    watcher = StopStrings(["DEFGHIJ"])
    results = [watcher.push(letter) for letter in "ABCDEFGHIJ"]
    assert results == [("A", None), ("B", None), ("C", None), *[("", None)] * 6, ("", "DEFGHIJ")]
    assert watcher.push("KLM") == ("", "DEFGHIJ")
    assert watcher.finish() == ""


def test_held_text_is_released_with_the_character_that_rules_a_match_out() -> None:
    assert shown_for(["DEFGHIJ"], list("ABDEFGX")) == ["A", "B", "", "", "", "", "DEFGX"]


def test_held_text_is_released_up_to_where_a_match_may_begin_anew() -> None:
    assert shown_for(["DEFGHIJ"], list("DEFDEFG")) == ["", "", "", "DEF", "", "", ""]
    assert shown_for(["aab"], list("aaaab")) == ["", "", "a", "a", ""]


def test_what_is_held_at_the_end_of_the_reply_is_text_after_all() -> None:
    watcher = StopStrings(["\n\nUser:"])
    assert watcher.push("Done.\n\nUs") == ("Done.", None)
    assert watcher.finish() == "\n\nUs"
    assert watcher.finish() == ""


def test_text_around_a_stop_string_within_one_piece() -> None:
    assert StopStrings(["stop"]).push("go on, stop here") == ("go on, ", "stop")


def test_the_stop_string_that_is_complete_first_wins() -> None:
    assert StopStrings(["abcdef", "cd"]).push("xabcdef") == ("xab", "cd")


@pytest.mark.parametrize("stops", [["bc", "abc"], ["abc", "bc"]])
def test_of_two_completed_by_one_character_the_longer_wins(stops: list[str]) -> None:
    assert StopStrings(stops).push("xabc") == ("x", "abc")


def test_a_stop_string_within_the_beginning_of_another() -> None:
    assert shown_for(["<end of turn>", "of"], ["a <en", "d o", "f turn>"]) == ["a ", "", "<end "]


def test_without_stop_strings_text_passes_as_it_comes() -> None:
    watcher = StopStrings()
    assert watcher.push("anything") == ("anything", None)
    assert watcher.finish() == ""


def test_stop_strings_may_hold_characters_of_any_script() -> None:
    assert shown_for(["。👩‍👩‍👧"], ["はい", "。", "👩", "‍👩‍", "👧x"]) == ["はい", "", "", "", ""]


def first_match(text: str, stops: list[str]) -> tuple[str, str] | None:
    """Text before the match, and the stop string, by searching the whole text."""
    found = [(text.find(stop) + len(stop), -len(stop), stop) for stop in stops if stop in text]
    if not found:
        return None
    end, negative_length, stop = min(found)
    return text[: end + negative_length], stop


@given(
    stops=st.lists(st.text("ab<", min_size=1, max_size=6), max_size=4),
    pieces=st.lists(st.text("ab<", max_size=5), max_size=12),
)
def test_any_text_in_any_pieces_ends_where_a_search_of_the_whole_text_says(stops: list[str], pieces: list[str]) -> None:
    watcher = StopStrings(stops)
    shown, pushed = "", ""
    for piece in pieces:
        visible, matched = watcher.push(piece)
        pushed += piece
        shown += visible
        expected = first_match(pushed, stops)
        if expected is not None:
            assert (shown, matched) == expected
            return
        assert matched is None
        # Exactly what could still become a stop string is held, and no character more.
        beginnings = {stop[:length] for stop in stops for length in range(1, len(stop))}
        held = max(
            (length for length in range(len(pushed) + 1) if pushed[len(pushed) - length :] in beginnings), default=0
        )
        assert shown == pushed[: len(pushed) - held]
    assert shown + watcher.finish() == pushed
