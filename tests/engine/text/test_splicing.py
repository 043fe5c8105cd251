"""Replies whose ids are known: a chat that goes on begins with what the model has read and written."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from chat_messages import assistant, user
from chat_templates import (
    CHANNELS,
    CHATML,
    DROPS_THOUGHTS,
    LLAMA2,
    NEEDS_THOUGHTS,
    OPENS_THOUGHTS,
    WORDS_ALONE,
    encoder,
    template_of,
)
from paged_chat.engine.text.chat_encoder import ChatEncoder
from paged_chat.engine.text.detokenizer import whole_characters
from paged_chat.engine.text.tokenizer import Tokenizer
from tiny_tokenizer import load_tokenizer

MakeFolder = Callable[..., Path]

END_OF_TEXT, IM_START, IM_END = 0, 1, 2
BOS, EOS = 1, 2


def letters(tokenizer: Tokenizer, text: str) -> list[int]:
    """A text one token a letter, as a model may sample it and the tokenizer never would."""
    return [token_id for letter in text for token_id in tokenizer.encode(letter)]


@pytest.fixture
def chatml(byte_level: Tokenizer) -> ChatEncoder:
    return encoder(byte_level, CHATML)


# Behind a reply


def test_a_sampled_reply_is_read_back_as_the_ids_it_was_sampled_as(chatml: ChatEncoder, byte_level: Tokenizer) -> None:
    prompt = chatml.encode([user("hello")])
    sampled = letters(byte_level, "hello")
    assert sampled != byte_level.encode("hello")
    turn = chatml.encode([user("hello"), assistant("hello", [*sampled, IM_END]), user("again <|im_end|>")])
    assert turn[: len(prompt) + 6] == [*prompt, *sampled, IM_END]
    rest = byte_level.encode_markup("\n<|im_start|>user\nagain ") + byte_level.encode("<|im_end|>")
    assert turn[len(prompt) + 6 :][: len(rest)] == rest


def test_the_end_of_a_turn_is_written_once_whether_or_not_the_reply_ended_with_it(
    chatml: ChatEncoder, byte_level: Tokenizer
) -> None:
    hello = byte_level.encode("hello")
    ended = chatml.encode([user("a"), assistant("hello", [*hello, IM_END]), user("b")])
    cut = chatml.encode([user("a"), assistant("hello", hello), user("b")])
    assert ended == cut == chatml.encode([user("a"), assistant("hello"), user("b")])
    assert ended.count(IM_END) == 3


def test_an_end_token_that_history_spells_differently_gives_way(byte_level: Tokenizer) -> None:
    channels = encoder(byte_level, CHANNELS)
    prompt = channels.encode([user("a")])
    reply = byte_level.encode("|final|hello")
    turn = channels.encode([user("a"), assistant("hello", [*reply, IM_END]), user("b")])
    assert turn == [*prompt, *reply, END_OF_TEXT, *channels.encode([user("b")])]


def test_an_end_token_stays_where_the_template_writes_none(byte_level: Tokenizer) -> None:
    words = encoder(byte_level, WORDS_ALONE)
    reply = [*byte_level.encode("hello"), IM_END]
    turn = words.encode([user("a"), assistant("hello", reply), user("b")])
    assert turn == [*words.encode([user("a")]), *reply, *byte_level.encode("\nuser: b\nassistant: ")]


def test_a_control_token_inside_a_reply_stays(chatml: ChatEncoder, byte_level: Tokenizer) -> None:
    reply = [*byte_level.encode("a"), IM_START, *byte_level.encode("b"), IM_END]
    turn = chatml.encode([user("a"), assistant("ab", reply), user("b")])
    assert turn[: len(chatml.encode([user("a")])) + len(reply)] == [*chatml.encode([user("a")]), *reply]


@pytest.mark.parametrize("reply", [[], [IM_END]])
def test_an_empty_reply(chatml: ChatEncoder, byte_level: Tokenizer, reply: list[int]) -> None:
    turn = chatml.encode([user("a"), assistant("", reply), user("b")])
    rest = byte_level.encode_markup("<|im_end|>\n<|im_start|>user\nb<|im_end|>\n<|im_start|>assistant\n")
    assert turn == chatml.encode([user("a")]) + rest


def test_a_reply_cut_inside_a_character_keeps_its_bytes(chatml: ChatEncoder, byte_level: Tokenizer) -> None:
    half = byte_level.encode("é")[:1]
    assert byte_level.decode(half) == "\ufffd"
    turn = chatml.encode([user("a"), assistant("", half), user("b")])
    prompt = chatml.encode([user("a")])
    assert turn[: len(prompt) + 2] == [*prompt, *half, IM_END]


# Before a reply


def test_a_space_before_replies_in_history_is_not_put_between_a_prompt_and_its_reply(sentence_piece: Tokenizer) -> None:
    llama2 = encoder(sentence_piece, LLAMA2)
    prompt = llama2.encode([user("hello")])
    reply = sentence_piece.encode("the user")
    turn = llama2.encode([user("hello"), assistant("the user", [*reply, EOS]), user("again")])
    assert turn == [*prompt, *reply, EOS, *sentence_piece.encode_markup("<s>[INST] again [/INST]")]


def test_a_thought_that_the_prompt_opened_stays_open(byte_level: Tokenizer) -> None:
    thinking = encoder(byte_level, OPENS_THOUGHTS)
    prompt = thinking.encode([user("hello")])
    assert byte_level.decode(prompt, skip_special=False).endswith("<|im_start|><think>\n")
    reply = [*byte_level.encode("hm</think>hello"), IM_END]
    turn = thinking.encode([user("hello"), assistant("hm</think>hello", reply), user("again")])
    assert turn[: len(prompt) + len(reply)] == [*prompt, *reply]


def test_a_thought_stays_in_the_history_of_a_chat_whose_template_would_drop_it(byte_level: Tokenizer) -> None:
    thinking = encoder(byte_level, DROPS_THOUGHTS)
    text = "<think>\nhm\n</think>\n\nhello"
    prompt, reply = thinking.encode([user("a")]), [*byte_level.encode(text), IM_END]
    turn = thinking.encode([user("a"), assistant(text, reply), user("b")])
    assert turn[: len(prompt) + len(reply)] == [*prompt, *reply]
    # Where its ids aren't known, the template has its way.
    assert "hm" not in byte_level.decode(thinking.encode([user("a"), assistant(text), user("b")]))


def test_what_follows_a_reply_doesn_t_begin_with_the_space_that_a_text_begins_with(make_folder: MakeFolder) -> None:
    vocab = {character: i for i, character in enumerate("▁\n:abcdefghijklmnopqrstuvwxyz")}
    spelling = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
    spelling.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    spelling.decoder = decoders.Metaspace(prepend_scheme="first")
    tokenizer = load_tokenizer(make_folder(spelling.to_str()), Path("unused"))
    assert tokenizer is not None
    chat = [user("a"), assistant("b", [vocab["b"]]), user("c")]
    text = "user: a\nassistant: b\nuser: c\nassistant: "
    assert encoder(tokenizer, WORDS_ALONE).encode(chat) == tokenizer.encode_markup(text)


# Where the ids can't be placed


def test_a_template_that_leaves_replies_out_gets_the_text(byte_level: Tokenizer) -> None:
    forgetful = encoder(byte_level, "{% for m in messages if m.role == 'user' %}{{ m.content }};{% endfor %}")
    for _ in range(2):
        ids = forgetful.encode([user("hello"), assistant("hello", (5, 6)), user("again")])
        assert ids == byte_level.encode("hello;again;")


def test_a_template_that_writes_replies_only_before_a_new_one(byte_level: Tokenizer) -> None:
    source = (
        "{% for m in messages if m.role == 'user' %}{{ m.content }};{% endfor %}"
        "{% if add_generation_prompt %}"
        "{% for m in messages if m.role == 'assistant' %}{{ m.content }}{% endfor %}{% endif %}"
    )
    late, hello = encoder(byte_level, source), letters(byte_level, "hello")
    ids = late.encode([user("a"), assistant("hello", hello), user("b")])
    assert ids == [*byte_level.encode("a;b;"), *hello]


def test_a_template_that_cuts_replies_gets_the_text(byte_level: Tokenizer) -> None:
    cutting = encoder(byte_level, NEEDS_THOUGHTS)
    reply = byte_level.encode("hm</think>hello")
    ids = cutting.encode([user("a"), assistant("hm</think>hello", reply), user("b")])
    assert "assistant\nhello<|im_end|>" in byte_level.decode(ids, skip_special=False)


# What a person wrote


def test_a_message_has_the_same_ids_whatever_others_hold(byte_level_spec: str, make_folder: MakeFolder) -> None:
    spec = json.loads(byte_level_spec)
    # Qwen's <think> is such a token: one of the vocabulary, but none that a message could forge a turn with.
    spec["added_tokens"].append({**spec["added_tokens"][0], "id": 300, "content": "<think>", "special": False})
    tokenizer = load_tokenizer(make_folder(json.dumps(spec)), Path("unused"))
    assert tokenizer is not None
    chats = encoder(tokenizer, CHATML)
    first = chats.encode([user("a <think> b")])
    assert first.count(300) == 1
    for forgery in ("<|im_end|>", "<", "\U00100000"):
        turn = chats.encode([user("a <think> b"), assistant("c", tokenizer.encode("c")), user(forgery)])
        assert turn[: len(first)] == first


def test_a_text_is_encoded_the_same_whether_or_not_it_is_split_at_control_tokens(sentence_piece: Tokenizer) -> None:
    llama2 = encoder(sentence_piece, LLAMA2)
    chat = [user("a b "), assistant(" c"), user("\nd"), assistant(""), user("e")]
    for length in (1, 3, 5):
        expected = sentence_piece.encode_markup(template_of(sentence_piece, LLAMA2).render(chat[:length]))
        assert llama2.encode(chat[:length]) == expected


# Going on with a reply


def test_a_reply_goes_on_before_its_end_token_and_before_half_a_character(byte_level: Tokenizer) -> None:
    whole = byte_level.encode("hé")
    assert whole_characters(byte_level, byte_level.without_end([*whole, IM_END])) == whole
    assert whole_characters(byte_level, whole) == whole
    assert whole_characters(byte_level, [*whole, *byte_level.encode("日")[:1]]) == whole
    assert whole_characters(byte_level, []) == []
    assert byte_level.without_end([]) == []
