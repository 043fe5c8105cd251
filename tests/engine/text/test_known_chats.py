"""Chats that go on: what is known of them is neither rendered nor encoded again."""

import json
import threading
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chat_messages import assistant, system, user
from chat_templates import APPENDING, CHATML, DATED, REWRITING, SYSTEM_LAST, TRIMS_HISTORY, encoder, template_of
from paged_chat.engine.text import template_environment
from paged_chat.engine.text.chat_encoder import MAX_KNOWN_CHATS, ChatEncoder
from paged_chat.engine.text.chat_message import ChatMessage
from paged_chat.engine.text.chat_template import ChatTemplate
from paged_chat.engine.text.tokenizer import Tokenizer
from tiny_tokenizer import load_tokenizer

MakeFolder = Callable[..., Path]

END_OF_TEXT, IM_START, IM_END = 0, 1, 2


@pytest.fixture
def chatml(byte_level: Tokenizer) -> ChatEncoder:
    return encoder(byte_level, CHATML)


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


def test_a_date_that_a_template_writes_only_later_is_noticed_too(
    byte_level: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (
        "{% for m in messages %}{{ m.content }}{% if loop.index0 > 1 %}{{ strftime_now('%d') }}{% endif %};{% endfor %}"
    )
    clock, chats = Clock(monkeypatch), encoder(byte_level, source)
    chats.encode([user("a")])
    assert byte_level.decode(chats.encode([user("a"), assistant("b"), user("c")])) == "a;b;c29;"
    clock.now = datetime(2026, 11, 30)
    assert byte_level.decode(chats.encode([user("a"), assistant("b"), user("c")])) == "a;b;c30;"


@pytest.mark.parametrize(
    "refusal",
    [
        "{% if not add_generation_prompt %}{{ raise_exception('no reply is wanted') }}{% endif %}",
        "{% if messages[-1].role == 'system' %}{{ raise_exception('no question') }}{% endif %}",
        "{% if messages | length in (1, 4) %}{{ raise_exception('odd') }}{% endif %}",
    ],
)
def test_a_template_is_asked_for_no_more_than_it_must_take(byte_level: Tokenizer, refusal: str) -> None:
    source = refusal + CHATML
    chats, chat = encoder(byte_level, source), [system("Be kind"), assistant("a", byte_level.encode("a")), user("b")]
    for text in "cd":
        expected = byte_level.encode_markup(template_of(byte_level, source).render(chat))
        assert chats.encode(chat) == expected
        chat += [assistant(text, byte_level.encode(text)), user(text)]


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
