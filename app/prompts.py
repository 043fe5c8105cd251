"""Prompts of replies: a chat's path as token ids, and what of them the cache has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paged_chat.engine import ChatMessage

from .chats import Chat, Message
from .engine_host import LoadedEngine
from .send_plan import SendPlan


@dataclass(frozen=True, slots=True)
class Prompt:
    """What a request is submitted with, and what that will take."""

    token_ids: Sequence[int]
    plan: SendPlan


def make_prompt(loaded: LoadedEngine, chat: Chat, path: Sequence[Message], *, continue_reply: bool = False) -> Prompt:
    """Encodes a path that ends with a person's message, or with the reply that is to be continued.

    Waits for the step that the engine computes, to see what the pool holds. Raises PromptTooLong,
    ChatTemplateInvalid, TokenizerMissing, EngineClosed.
    """
    messages = [] if chat.system_prompt is None else [ChatMessage("system", chat.system_prompt)]
    messages += [ChatMessage(m.role, m.text, m.token_ids) for m in path]
    token_ids = loaded.engine.encode_chat(messages)
    probe = loaded.served.call(lambda engine: engine.probe(token_ids, salt=chat.user)).result()
    plan = SendPlan(
        num_prompt_tokens=len(token_ids),
        num_reused_tokens=probe.num_cached_tokens,
        num_reused_blocks=probe.num_cached_blocks,
        window=loaded.engine.max_model_len,
    )
    return Prompt(token_ids, plan)


def check_fits(loaded: LoadedEngine, chat: Chat, message: Message) -> None:
    """Raises PromptTooLong for a message that has no place in the window even alone."""
