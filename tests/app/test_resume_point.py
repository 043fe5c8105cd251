"""Where a reply goes on: whole characters, and words that stay apart."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from fake_engine import FakeEngine
from paged_chat.app.chats import Message
from paged_chat.app.resume_point import ResumePoint, resume_point
from paged_chat.app.running_reply import RunningReply
from paged_chat.engine.config import EngineConfig
from paged_chat.engine.request import TokenDelta
from tiny_tokenizer import END, spelled

REPLY = Message(
    id=2,
    chat_id="c",
    parent_id=1,
    role="assistant",
    text="a你",
    token_ids=tuple(spelled("a你")),
    model="m",
    status="stopped",
    created_at=datetime(2026, 1, 1, tzinfo=UTC),
)


@pytest.fixture
def engine():
    fake = FakeEngine()
    yield fake.open(EngineConfig(model="m"), lambda _: None).call(lambda engine: engine).result()
    fake.close()


@pytest.mark.parametrize("tail", [(), (END,), tuple(spelled("好")[:1]), tuple(spelled("好")[:2])])
def test_an_end_token_and_half_a_character_are_drawn_again(engine, tail):
    at = resume_point(engine, replace(REPLY, token_ids=REPLY.token_ids + tail), "m")
    assert (tuple(at.token_ids), at.text) == (REPLY.token_ids, "a你")


@pytest.mark.parametrize("reply", [replace(REPLY, token_ids=(7, 8, 9), model="other"), replace(REPLY, token_ids=None)])
def test_the_ids_of_another_model_mean_nothing_so_its_text_is_encoded(engine, reply):
    at = resume_point(engine, reply, "m")
    assert (tuple(at.token_ids), at.text) == (REPLY.token_ids, "a你")


# A tokenizer of SentencePiece's kind: every word brings its space, and a text loses the first.
WORDS = [" the", " day", "s", "."]


def decode(token_ids):
    return "".join(WORDS[token_id] for token_id in token_ids).removeprefix(" ")


@pytest.mark.parametrize(
    ("before", "new", "text"),
    [
        ([0], [1], "the day"),
        ([0, 1], [2, 3], "the days."),
        ([], [0, 1], "the day"),
        ([0] * 20, [1], "the " * 20 + "day"),
    ],
)
def test_words_stay_apart_where_a_reply_is_continued(before, new, text):
    draft = replace(REPLY, text="", token_ids=(), status="draft")
    reply = RunningReply(draft, 0, lambda _: None)
    reply.resume(ResumePoint(before, decode(before), decode))
    for number, token_id in enumerate(new):
        # As the engine's detokenizer says it: the first space of its own text is taken away.
        said = decode(new[: number + 1]).removeprefix(decode(new[:number]))
        reply.grow(TokenDelta("r1", 0, (token_id,), said))
    assert (reply.message().text, list(reply.message().token_ids)) == (text, before + new)
