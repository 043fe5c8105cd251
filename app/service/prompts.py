"""Prompts of replies: what a chat's path becomes for the engine, and what of it the cache has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paged_chat.engine import PrefixProbe, TimeEstimate
from paged_chat.engine.model.catalog import is_same_model

from ..chats import Chat, Message
from ..engine_query import engine_query
from ..transcript.miss_reason import Explain, History, why_missed
from ..transcript.transcript import ContextPlan
from .engine_host import LoadedEngine
from .model_notice import model_notice
from .send_plan import SendPlan

if TYPE_CHECKING:
    from paged_chat.engine import Engine


def check_fits(loaded: LoadedEngine, chat: Chat, text: str, max_tokens: int | None) -> None:
    """Raises PromptTooLong for a message that has no place in the window even alone; costs what its length does."""
    loaded.transcript.preview(chat.system_prompt, (), text, max_tokens=max_tokens)


def check_room(loaded: LoadedEngine, chat: Chat, path: Sequence[Message], max_tokens: int | None) -> None:
    """Raises PromptTooLong where the reply at the path's end can't grow any more."""
    loaded.transcript.preview(chat.system_prompt, path, continue_reply=True, max_tokens=max_tokens)


def preview(
    loaded: LoadedEngine,
    chat: Chat,
    path: Sequence[Message],
    text: str | None,
    max_tokens: int | None,
    *,
    continue_reply: bool = False,
) -> SendPlan:
    """The plan of a reply to `text` behind the path, or of one to the path as it is; raises as `Transcript` does."""
    context = loaded.transcript.preview(
        chat.system_prompt, path, text, continue_reply=continue_reply, max_tokens=max_tokens
    )
    return look_up(loaded, chat, path, context)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptCost:
    """What of a prompt the pool holds now, and how long the rest will take."""

    prefix: PrefixProbe
    expected_ttft: TimeEstimate | None


@engine_query
def prompt_cost(engine: Engine, token_ids: tuple[int, ...], salt: str) -> PromptCost:
    """Changes nothing."""
    prefix = engine.probe(token_ids, salt=salt)
    return PromptCost(prefix=prefix, expected_ttft=engine.expected_ttft(len(token_ids), prefix.num_cached_tokens))


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedPrompt:
    """A prompt as the engine gets it, with what is known of it before.

    reply_start: ids that each reply begins with, as if they had been drawn; `token_ids` end before them.
    explain: says why the prompt found what it did when it was admitted.
    """

    token_ids: tuple[int, ...]
    reply_start: tuple[int, ...]
    plan: SendPlan
    explain: Explain


def prepared(
    loaded: LoadedEngine,
    chat: Chat,
    path: Sequence[Message],
    context: ContextPlan,
    *,
    reply_start: tuple[int, ...] = (),
) -> PreparedPrompt:
    """Raises as `look_up` does."""
    return PreparedPrompt(
        token_ids=context.token_ids[: context.num_tokens - len(reply_start)],
        reply_start=reply_start,
        plan=look_up(loaded, chat, path, context),
        explain=explainer(loaded, path, context),
    )


def look_up(loaded: LoadedEngine, chat: Chat, path: Sequence[Message], context: ContextPlan) -> SendPlan:
    """What of a prompt the pool holds now; waits for the step that the engine computes. Raises EngineClosed."""
    cost = loaded.served.call(prompt_cost.ask(context.token_ids, chat.user)).result()
    return SendPlan(
        num_prompt_tokens=context.num_tokens,
        num_reused_tokens=cost.prefix.num_cached_tokens,
        window=context.window,
        left_out_ids=context.left_out_ids,
        num_left_out_turns=context.num_left_out_turns,
        divergence=context.divergence,
        expected_ttft=cost.expected_ttft,
        miss=explainer(loaded, path, context)(cost.prefix),
        model_notice=model_notice(chat, loaded.model),
    )


def explainer(loaded: LoadedEngine, path: Sequence[Message], context: ContextPlan) -> Explain:
    """Says why a prompt found what it did, when it was looked up or when it was admitted."""
    before = next((message for message in reversed(path) if message.role == "assistant" and message.text), None)
    is_others = before is not None and before.model is not None and not is_same_model(before.model, loaded.model)
    history = History(
        num_read_tokens=context.num_read_tokens,
        divergence=context.divergence,
        was_read_by=before.model if before is not None and is_others else None,
        is_older=before is not None and before.created_at < loaded.loaded_at,
    )
    return lambda prefix: why_missed(prefix, context.token_ids, loaded.engine.decode, history)
