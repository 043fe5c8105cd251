"""A reply's tokens in words and looks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paged_chat.app.token_view.reply_tokens import Alternative, ReplyToken, reply_tokens
from paged_chat.app.token_view.token_piece import TokenPiece, legible
from paged_chat.app.token_view.token_words import Surety, choice_words, percent, place_words, surety_of
from paged_chat.engine.request import TokenLogprobs


@pytest.mark.parametrize(
    ("spelled", "shown"),
    [
        (b" the", " the"),
        ("é日本😀".encode(), "é日本😀"),
        (b"\xf0\x9f", "⟨F0 9F⟩"),
        (b"\x98\x80", "⟨98 80⟩"),
        (b" \xf0\x9f", " ⟨F0 9F⟩"),
        (b"\x80!\xc3", "⟨80⟩!⟨C3⟩"),
        (b"\x1b[31m", "⟨U+001B⟩[31m"),
        ("\u200b\u202e".encode(), "⟨U+200B⟩⟨U+202E⟩"),
        (b"\n\t", "\n\t"),
        (b"<|im_end|>", "<|im_end|>"),
        (b"", ""),
    ],
)
def test_nothing_of_a_token_is_hidden(spelled, shown):
    assert legible(spelled) == shown


@given(st.binary(max_size=12))
def test_any_bytes_can_be_shown_anywhere(spelled):
    shown = legible(spelled)
    shown.encode()
    assert all(character.isprintable() or character in "\n\t" or ord(character) > 0x7F for character in shown)


@pytest.mark.parametrize(
    ("text", "flowing", "label"),
    [
        (" the", " the", "␣the"),
        ("  a b ", "  a b ", "␣␣a b␣"),
        ("\n\n", "⏎\n⏎\n", "⏎⏎"),
        ("\tx", "⇥\tx", "⇥x"),
        ("", "", "token 7"),
    ],
)
def test_a_piece_among_others_and_by_itself(text, flowing, label):
    piece = TokenPiece(7, text)
    assert (piece.flowing, piece.label) == (flowing, label)


@pytest.mark.parametrize(
    ("probability", "words"),
    [
        (1.0, "100 %"),
        (0.9999, ">99.9 %"),
        (0.9949, "99 %"),
        (0.996, "99.6 %"),
        (0.42, "42 %"),
        (0.0995, "10 %"),
        (0.042, "4.2 %"),
        (0.0099, "0.99 %"),
        (0.0003, "0.03 %"),
        (0.00001, "<0.01 %"),
    ],
)
def test_a_probability_is_never_rounded_to_nothing_or_all(probability, words):
    assert percent(probability) == words


def token(probability, *alternatives):
    return ReplyToken(11, TokenPiece(5, " cat"), probability, alternatives)


@pytest.mark.parametrize(
    ("probability", "surety"),
    [
        (None, None),
        (1.0, Surety.SURE),
        (0.9, Surety.SURE),
        (0.89, Surety.LIKELY),
        (0.5, Surety.LIKELY),
        (0.2, Surety.DOUBTFUL),
        (0.19, Surety.UNLIKELY),
        (0.0, Surety.UNLIKELY),
    ],
)
def test_how_sure_a_token_was(probability, surety):
    assert surety_of(token(probability)) is surety


def test_each_look_can_be_told_without_colour():
    assert len({surety.look.underline for surety in Surety}) == len(Surety)
    assert len({surety.look.light for surety in Surety}) == len({surety.look.dark for surety in Surety}) == len(Surety)


def test_places_and_choices_in_words():
    assert place_words(token(0.42), 1240) == "token 12 of 1,240, 42 %"
    assert place_words(token(None), 12) == "token 12 of 12"
    dog = Alternative(TokenPiece(6, " dog"), 0.3, is_written=False)
    assert choice_words(token(0.42), dog) == "“␣dog” in place of “␣cat”"
    cat = Alternative(TokenPiece(5, " cat"), 0.42, is_written=True)
    assert choice_words(token(0.42), cat) == "“␣cat” again, and on from there with other random numbers"


def test_alternatives_are_ranked_with_the_written_one_among_them():
    asked = []

    def spell(token_ids):
        asked.append(sorted(token_ids))
        return [TokenPiece(token_id, f"t{token_id}") for token_id in token_ids]

    shown = reply_tokens(
        3, "tiny", (5, 6, 5), (TokenLogprobs(5, -3.0, ((7, -0.5), (8, -1.0))), None, TokenLogprobs(5, 0.0)), spell
    )
    assert asked == [[5, 6, 7, 8]], "every id is spelled once"
    assert [(one.piece.text, one.is_written) for one in shown.tokens[0].alternatives] == [
        ("t7", False),
        ("t8", False),
        ("t5", True),
    ]
    assert (shown.tokens[1].probability, shown.tokens[1].alternatives) == (None, ())
    assert [one.probability for one in shown.tokens[2].alternatives] == [1.0]
    assert shown.has_alternatives
