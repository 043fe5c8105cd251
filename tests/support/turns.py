"""Turns of a chat, as a person and a model would make them."""

from paged_chat.app.chats import Message, NewReply, ReplyCost
from paged_chat.app.store.store import Store
from paged_chat.engine.request import SamplingParams

SEEDED = NewReply(model="tiny", sampling=SamplingParams(temperature=0.7, seed=1))
COST = ReplyCost(num_cached_tokens=10, num_computed_tokens=3, num_generated_tokens=2, ttft_ms=12.5, tokens_per_s=80.0)


def ask(
    store: Store, chat_id: str, text: str, answer: str = "Yes.", *, below: int | None = None
) -> tuple[Message, Message]:
    """A person's message and the finished reply to it."""
    turn = store.add_turn(chat_id, below, text, [SEEDED])
    assert turn.user_message is not None
    return turn.user_message, finish(store, turn.replies[0].id, answer)


def retry(store: Store, question: Message, answer: str) -> Message:
    """One more reply to a person's message."""
    return finish(store, store.add_turn(question.chat_id, question.id, None, [SEEDED]).replies[0].id, answer)


def finish(store: Store, reply_id: int, text: str = "Yes.", token_ids: tuple[int, ...] = (8, 2)) -> Message:
    return store.finish_reply(reply_id, text=text, token_ids=token_ids, status="done", finish_reason="stop", cost=COST)
