"""Streaming text: no broken characters, nothing taken back, the same text as decoding all at once."""

from itertools import pairwise

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from paged_chat.engine.text.detokenizer import Detokenizer
from paged_chat.engine.text.tokenizer import Tokenizer

FAMILY = "👩‍👩‍👧"
FIRST_BYTE_ID = 3  # in both tiny tokenizers
TEXTS = [
    f"a family {FAMILY} of three",
    "日本語の文章です。中文也可以。한국어",
    "Vie\u0302\u0323t e\u0301 कि नमस्ते",
    "def f(x):\n\treturn  x\n\n\n",
    "  two spaces at the start, one at the end ",
    "🏳️‍🌈🇩🇪 \U0001f9d1🏽‍🚀",
]


def streamed(tokenizer: Tokenizer, token_ids: list[int]) -> list[str]:
    """The delta of each token."""
    detokenizer = Detokenizer(tokenizer)
    return [detokenizer.push([token_id]) for token_id in token_ids]


def byte_ids(tokenizer: Tokenizer, raw: bytes) -> list[int]:
    """Ids of single bytes."""
    by_byte = {tokenizer.token_bytes.of(token_id, first=False): token_id for token_id in range(256 + FIRST_BYTE_ID)}
    return [by_byte[bytes([byte])] for byte in raw]


@pytest.fixture(scope="module", params=["byte_level", "sentence_piece"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    found: Tokenizer = request.getfixturevalue(request.param)
    return found


@pytest.mark.parametrize("text", TEXTS)
def test_deltas_hold_whole_characters_and_join_to_the_text(tokenizer: Tokenizer, text: str) -> None:
    deltas = streamed(tokenizer, tokenizer.encode(text))
    assert "".join(deltas) == text
    assert not any("\ufffd" in delta for delta in deltas)


def test_an_emoji_appears_with_its_last_byte(tokenizer: Tokenizer) -> None:
    ids = byte_ids(tokenizer, "é👩".encode())
    assert streamed(tokenizer, ids) == ["", "é", "", "", "", "👩"]


def test_a_character_cut_off_by_the_end_of_the_reply_is_dropped(tokenizer: Tokenizer) -> None:
    ids = byte_ids(tokenizer, b"ok" + FAMILY.encode()[:-1])
    assert "".join(streamed(tokenizer, ids)) == "ok👩‍👩‍"


def test_bytes_that_make_no_character_come_out_as_decoding_gives_them(tokenizer: Tokenizer) -> None:
    ids = byte_ids(tokenizer, b"a\xe2\x82b\xffc")
    assert streamed(tokenizer, ids) == ["a", "", "", "\ufffdb", "\ufffd", "c"]
    assert tokenizer.decode(ids) == "a\ufffdb\ufffdc"


def test_a_real_replacement_character_is_shown(tokenizer: Tokenizer) -> None:
    ids = byte_ids(tokenizer, "\ufffd!".encode())
    assert streamed(tokenizer, ids) == ["", "", "\ufffd", "!"]


def test_special_tokens_and_ids_beyond_the_vocabulary_leave_no_trace(tokenizer: Tokenizer) -> None:
    euro = byte_ids(tokenizer, "€".encode())
    ids = [1, euro[0], 2, euro[1], 100_000, euro[2], 2]
    assert "".join(streamed(tokenizer, ids)) == tokenizer.decode(ids) == "€"


def test_the_space_that_sentencepiece_puts_before_a_text_is_stripped_once(sentence_piece: Tokenizer) -> None:
    ids = sentence_piece.encode("the user hello")
    assert streamed(sentence_piece, ids) == ["the", " user", " hello"]
    assert streamed(sentence_piece, [1, *ids]) == ["", "the", " user", " hello"]


def test_a_metaspace_decoder_strips_as_the_library_does(sentence_piece_spec: str) -> None:
    from paged_chat.engine.text.token_bytes import TokenBytes

    plain = tokenizers.Tokenizer.from_str(sentence_piece_spec)
    plain.decoder = tokenizers.decoders.Metaspace()
    token_bytes = TokenBytes(plain)
    ids = plain.encode(" the user", add_special_tokens=False).ids
    pieces = [token_bytes.of(token_id, first=position == 0) or b"" for position, token_id in enumerate(ids)]
    assert b"".join(pieces).decode() == plain.decode(ids)


def test_without_a_decoder_tokens_are_words(sentence_piece_spec: str) -> None:
    from paged_chat.engine.text.token_bytes import TokenBytes

    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"one": 0, "two": 1, "three": 2}, unk_token="one"))
    token_bytes = TokenBytes(words)
    assert [token_bytes.of(2, first=True), token_bytes.of(1, first=False)] == [b"three", b" two"]


@settings(deadline=None)
@given(ids=st.lists(st.integers(0, 320), max_size=40), cuts=st.lists(st.integers(0, 40), max_size=6))
def test_any_ids_in_any_pieces_give_the_text_that_the_library_decodes(
    byte_level: Tokenizer, byte_level_spec: str, ids: list[int], cuts: list[int]
) -> None:
    detokenizer = Detokenizer(byte_level)
    borders = [0, *sorted(cuts), len(ids)]
    text = ""
    for start, end in pairwise(borders):
        text += detokenizer.push(ids[start:end])
    whole = tokenizers.Tokenizer.from_str(byte_level_spec).decode(ids)
    assert byte_level.decode(ids) == whole
    assert whole in (text, text + "\ufffd")


@settings(deadline=None)
@given(ids=st.lists(st.integers(0, 320), max_size=40))
def test_any_sentencepiece_ids_stream_to_what_decode_gives(sentence_piece: Tokenizer, ids: list[int]) -> None:
    text = "".join(streamed(sentence_piece, ids))
    assert sentence_piece.decode(ids) in (text, text + "\ufffd")


@given(text=st.text(max_size=30))
def test_any_text_survives_both_tokenizers(byte_level: Tokenizer, sentence_piece: Tokenizer, text: str) -> None:
    assert "".join(streamed(byte_level, byte_level.encode(text))) == text
    if "▁" not in text:  # SentencePiece has no way to tell it from a space
        assert "".join(streamed(sentence_piece, sentence_piece.encode(text))) == text
