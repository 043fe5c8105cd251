"""Where a reply goes on: words that stay apart."""

from datetime import UTC, datetime

import pytest

from paged_chat.app.chats import Message
from paged_chat.app.service.resume_point import ResumePoint
from paged_chat.app.service.running_reply import RunningReply
from paged_chat.engine.request import TokenDelta

# A tokenizer of SentencePiece's kind: every word brings its space, and a text loses the first.
WORDS = [" the", " day", "s", "."]


def decode(token_ids):
    return "".join(WORDS[token_id] for token_id in token_ids).removeprefix(" ")


@pytest.mark.parametrize(
    ("before", "new", "text"),
    [
        ((0,), [1], "the day"),
        ((0, 1), [2, 3], "the days."),
        ((), [0, 1], "the day"),
        ((0,) * 20, [1, 0], "the " * 20 + "day the"),
    ],
)
def test_words_stay_apart_where_a_reply_is_continued(before, new, text):
    draft = Message(
        id=2, chat_id="c", parent_id=1, role="assistant", text="", status="draft", created_at=datetime.now(UTC)
    )
    reply = RunningReply(draft, 0, lambda _: None)
    reply.resume(ResumePoint(before, decode))
    for number, token_id in enumerate(new):
        # As the engine's detokenizer says it: the first space of its own text is taken away.
        said = decode(new[: number + 1]).removeprefix(decode(new[:number]))
        reply.grow(TokenDelta("r1", 0, (token_id,), said))
    assert (reply.message().text, reply.message().token_ids) == (text, (*before, *new))
