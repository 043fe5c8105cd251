"""Where a new turn hangs in a chat's tree, and the replies that it asks for."""

from __future__ import annotations

import os
from dataclasses import replace

from paged_chat.engine.errors import InvalidParameter
from paged_chat.engine.request import SamplingParams

from ..chats import Chat, Message, MessageTree, NewReply
from ..errors import ReplyRunning

NUM_SEED_BYTES = 6
NUM_SEEDS = 2**63


def find_whole(tree: MessageTree, message_id: int) -> Message:
    """One that doesn't grow any more; raises ReplyRunning for one that does."""
    message = tree.find(message_id)
    if message.status == "draft":
        raise ReplyRunning("this reply is still being written: wait for its end, or stop it")
    return message


def parent_of_message(chat: Chat, parent_id: int | None) -> int | None:
    """What a new message hangs below where nobody says it: the chat's active leaf."""
    return chat.active_leaf_id if parent_id is None else parent_id


def parent_of_edit(tree: MessageTree, message_id: int) -> int | None:
    """What an edited message hangs below: that of the message itself."""
    message = tree.find(message_id)
    if message.role != "user":
        raise InvalidParameter("only what a person wrote can be edited: retry a reply, or edit the message before it")
    return message.parent_id


def question_of(tree: MessageTree, message_id: int) -> int:
    """The person's message that a reply answers, or that one itself."""
    message = tree.find(message_id)
    question_id = message.id if message.role == "user" else message.parent_id
    if question_id is None:
        raise InvalidParameter("this reply answers no message, so it can't be retried: send one")
    return question_id


def request_params(sampling: SamplingParams, n: int, num_siblings: int) -> SamplingParams:
    """Of `n` replies that come beside others: a chosen seed gives the same first reply again, and then new ones.

    Raises InvalidParameter for an `n` that no request can have.
    """
    params = replace(sampling, n=n)
    # Reply i draws with seed + i; behind the last seed comes the first.
    seed = drawn_seed() if sampling.seed is None else (sampling.seed + num_siblings) % (NUM_SEEDS + 1 - n)
    return replace(params, seed=seed)


def drawn_seed() -> int:
    """One that no other reply has, but by chance."""
    return int.from_bytes(os.urandom(NUM_SEED_BYTES), "little")


def new_replies(model: str, params: SamplingParams) -> list[NewReply]:
    """As many as the request has samples; sample i draws with seed + i."""
    assert params.seed is not None, "replies are drawn with a seed that is kept"
    return [NewReply(model=model, sampling=replace(params, n=1, seed=params.seed + i)) for i in range(params.n)]
