"""Replies whose ids are known: a chat that goes on begins with what the model has read and written."""

import json
import threading
from collections.abc import Callable
from datetime import datetime
from functools import cache
from pathlib import Path

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers

from chat_messages import assistant, system, user
from chat_templates import (
    APPENDING,
    CHANNELS,
    CHATML,
    DATED,
    DROPS_THOUGHTS,
    LLAMA2,
    NEEDS_THOUGHTS,
    OPENS_THOUGHTS,
    REWRITING,
    SYSTEM_LAST,
    TRIMS_HISTORY,
    WORDS_ALONE,
)
from paged_chat.engine.text import template_environment
from paged_chat.engine.text.chat_encoder import MAX_KNOWN_CHATS, ChatEncoder
from paged_chat.engine.text.chat_message import ChatMessage
from paged_chat.engine.text.chat_template import ChatTemplate
from paged_chat.engine.text.detokenizer import whole_characters
from paged_chat.engine.text.tokenizer import Tokenizer, load_tokenizer

MakeFolder = Callable[..., Path]

END_OF_TEXT, IM_START, IM_END = 0, 1, 2
BOS, EOS = 1, 2


@cache
def template_of(tokenizer: Tokenizer, source: str) -> ChatTemplate:
    return ChatTemplate(tokenizer, source)


def encoder(tokenizer: Tokenizer, source: str) -> ChatEncoder:
    """One that remembers nothing yet."""
    return ChatEncoder(tokenizer, template_of(tokenizer, source))


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


# Going on from what is known


PIECES = [
    "<|im_end|>",
    "<",
    "</think>",
    "<think>",
    "\n",
    " ",
    "a",
    "é",
    "the user",
    "日本",
    "\U00100000",
    "👩‍👩‍👧",
    "  b\n",
]
TEXTS = st.lists(st.sampled_from(PIECES), max_size=5).map("".join)
# A reply of known ids, of any kind, or only of text.
REPLIES = st.one_of(
    TEXTS,
    st.tuples(st.lists(st.integers(3, 299), max_size=6), st.sampled_from([(), (IM_END,), (END_OF_TEXT,), (IM_START,)])),
)
TURNS = st.lists(st.tuples(TEXTS, REPLIES), min_size=1, max_size=9)
Turns = list[tuple[str, str | tuple[list[int], tuple[int, ...]]]]


def replied(tokenizer: Tokenizer, reply: str | tuple[list[int], tuple[int, ...]]) -> ChatMessage:
    if isinstance(reply, str):
        return assistant(reply)
    token_ids = [*reply[0], *reply[1]]
    return assistant(tokenizer.decode(token_ids), token_ids)


@settings(deadline=None, max_examples=25)
@given(has_system=st.booleans(), turns=TURNS)
@pytest.mark.parametrize("source", [*APPENDING.values(), *REWRITING.values()], ids=[*APPENDING, *REWRITING])
def test_a_chat_encoded_step_by_step_is_encoded_as_a_whole(
    byte_level: Tokenizer,
    source: str,
    has_system: bool,
    turns: Turns,
) -> None:
    stepwise = encoder(byte_level, source)
    chat = [system("Be kind <|im_end|> ")] if has_system else []
    for text, reply in turns:
        chat.append(user(text))
        assert stepwise.encode(chat) == encoder(byte_level, source).encode(chat)
        chat.append(replied(byte_level, reply))


@settings(deadline=None, max_examples=25)
@given(has_system=st.booleans(), turns=TURNS)
@pytest.mark.parametrize("kind", ["byte_level", "sentence_piece"])
@pytest.mark.parametrize("source", APPENDING.values(), ids=APPENDING)
def test_every_turn_begins_with_the_turn_before_it_and_its_reply(
    request: pytest.FixtureRequest,
    kind: str,
    source: str,
    has_system: bool,
    turns: Turns,
) -> None:
    tokenizer: Tokenizer = request.getfixturevalue(kind)
    chats = encoder(tokenizer, source)
    chat = [system("Be kind")] if has_system else []
    read: list[int] = []
    for text, reply in turns:
        chat.append(user(text))
        prompt = chats.encode(chat)
        assert prompt[: len(read)] == read
        chat.append(replied(tokenizer, reply))
        # Nobody has read the last token of a reply; a reply of text is new to the model, whatever precedes it.
        read = [] if chat[-1].token_ids is None else (prompt + list(chat[-1].token_ids))[:-1]


@pytest.mark.parametrize("source", [SYSTEM_LAST, TRIMS_HISTORY], ids=["system last", "trims history"])
def test_a_template_that_rewrites_history_has_its_way(byte_level: Tokenizer, source: str) -> None:
    chats, template = encoder(byte_level, source), ChatTemplate(byte_level, source)
    chat = [system("Be kind")]
    for turn in range(6):
        chat.append(user(f" {turn} "))
        assert byte_level.decode(chats.encode(chat), skip_special=False) == template.render(chat)
        chat.append(assistant(f"{turn}", byte_level.encode(f"{turn}")))


class Renderings:
    """Counts how many messages a template was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lengths: list[int] = []
        render = ChatTemplate.render

        def counted(template: ChatTemplate, messages: list[ChatMessage], add_generation_prompt: bool = True) -> str:
            self.lengths.append(len(messages))
            return render(template, messages, add_generation_prompt)

        monkeypatch.setattr(ChatTemplate, "render", counted)

    def take(self) -> list[int]:
        lengths, self.lengths = self.lengths, []
        return lengths


@pytest.fixture
def renderings(monkeypatch: pytest.MonkeyPatch) -> Renderings:
    return Renderings(monkeypatch)


def test_a_long_chat_is_rendered_whole_only_when_it_has_doubled(
    chatml: ChatEncoder, byte_level: Tokenizer, renderings: Renderings
) -> None:
    chat = [system("Be kind"), user("0")]
    whole_at = []
    for turn in range(1, 41):
        renderings.take()
        chatml.encode(chat)
        if max(renderings.take()) > 6:
            whole_at.append(turn)
        chat += [assistant(str(turn), byte_level.encode(str(turn))), user(str(turn))]
    assert whole_at == [4, 8, 16, 32]


def test_what_is_known_costs_no_rendering(chatml: ChatEncoder, byte_level: Tokenizer, renderings: Renderings) -> None:
    chat = [user("a"), assistant("b", byte_level.encode("b")), user("c")]
    first = chatml.encode(chat)
    renderings.take()
    again = chatml.encode(chat)
    assert renderings.take() == []
    assert again == first
    again.append(7)  # the caller's own list
    assert chatml.encode(chat) == first


def test_an_edit_goes_on_from_the_turn_before_it(
    chatml: ChatEncoder, byte_level: Tokenizer, renderings: Renderings
) -> None:
    chat = [user("a"), assistant("b", byte_level.encode("b")), user("c"), assistant("d"), user("e")]
    chatml.encode(chat[:1])
    chatml.encode(chat[:3])
    chatml.encode(chat)
    renderings.take()
    edited = chatml.encode([*chat[:2], user("C")])
    assert renderings.take() == [1, 3, 1]
    assert edited == encoder(byte_level, CHATML).encode([*chat[:2], user("C")])


def test_only_the_last_chats_are_remembered(chatml: ChatEncoder, renderings: Renderings) -> None:
    for number in range(MAX_KNOWN_CHATS + 1):
        chatml.encode([user(str(number))])
    renderings.take()
    chatml.encode([user("1")])
    assert renderings.take() == []
    chatml.encode([user("0")])
    assert len(renderings.take()) > 0


def test_chats_that_differ_only_in_the_middle_are_told_apart(byte_level: Tokenizer) -> None:
    chats = encoder(byte_level, CHATML)
    for middle in ("x", "y"):
        chat = [user("a"), assistant("b"), user("c"), assistant(middle), user("e"), assistant("f"), user("g")]
        assert chats.encode(chat) == encoder(byte_level, CHATML).encode(chat)


@pytest.mark.parametrize("peculiarity", ["none", "takes the space before it", "the one before it overlaps"])
def test_a_chat_is_split_only_at_tokens_that_stand_for_themselves(
    byte_level_spec: str, make_folder: MakeFolder, peculiarity: str
) -> None:
    spec = json.loads(byte_level_spec)
    im_end = spec["added_tokens"][IM_END]
    im_end["lstrip"] = peculiarity == "takes the space before it"
    if peculiarity == "the one before it overlaps":
        spec["added_tokens"].append({**im_end, "id": 300, "content": "x<", "special": False})
    tokenizer = load_tokenizer(make_folder(json.dumps(spec)), Path("unused"))
    assert tokenizer is not None
    chats, chat = encoder(tokenizer, CHATML), []
    for text in ("a ", "x", " "):
        chat.append(user(text))
        assert chats.encode(chat) == tokenizer.encode_markup(template_of(tokenizer, CHATML).render(chat))
        chat.append(assistant(text))


def test_a_template_that_looks_at_the_length_of_a_chat_is_found_out_and_rendered_whole(byte_level: Tokenizer) -> None:
    source = "{% if messages | length > 9 %}LONG {% endif %}" + CHATML
    chats = encoder(byte_level, source)
    chat = []
    for turn in range(12):
        chat += [user(str(turn)), assistant("ok", byte_level.encode("ok"))]
        ids = chats.encode(chat[:-1])
        if turn + 1 >= 8:  # found at the first doubling after it began
            assert ids == encoder(byte_level, source).encode(chat[:-1])
            assert byte_level.decode(ids[:5]) == "LONG "


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = datetime(2026, 11, 29)
        monkeypatch.setattr(template_environment, "read_clock", lambda format_: self.now.strftime(format_))
        monkeypatch.setattr(
            "paged_chat.engine.text.chat_encoder.read_clock", lambda format_: self.now.strftime(format_)
        )


def test_a_date_is_that_of_today_even_in_a_chat_that_is_known(
    byte_level: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, chats = Clock(monkeypatch), encoder(byte_level, DATED)
    chat = [user("a"), assistant("b", byte_level.encode("b")), user("c")]
    chats.encode(chat[:1])
    assert "Today is 29 Nov 2026" in byte_level.decode(chats.encode(chat))
    clock.now = datetime(2026, 11, 30)
    for known in (chat, chat[:1], [*chat, assistant("d"), user("e")]):
        assert "Today is 30 Nov 2026" in byte_level.decode(chats.encode(known))


def test_many_threads_encode_at_once(byte_level: Tokenizer) -> None:
    chats = encoder(byte_level, CHATML)
    wrong: list[tuple[int, int]] = []

    def talk(number: int) -> None:
        chat = [system(f"chat {number % 3}")]
        for turn in range(12):
            chat.append(user(f"{number} says {turn} <|im_end|>"))
            if chats.encode(chat) != encoder(byte_level, CHATML).encode(chat):
                wrong.append((number, turn))
            chat.append(assistant("yes", byte_level.encode("yes")))

    threads = [threading.Thread(target=talk, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# Going on with a reply


def test_a_reply_goes_on_before_its_end_token_and_before_half_a_character(byte_level: Tokenizer) -> None:
    whole = byte_level.encode("hé")
    assert whole_characters(byte_level, byte_level.without_end([*whole, IM_END])) == whole
    assert whole_characters(byte_level, whole) == whole
    assert whole_characters(byte_level, [*whole, *byte_level.encode("日")[:1]]) == whole
    assert whole_characters(byte_level, []) == []
    assert byte_level.without_end([]) == []
