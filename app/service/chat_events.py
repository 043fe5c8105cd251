"""What screens are told while they watch: a reply grew or ended, a chat changed, the list changed, the engine did."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from paged_chat.engine.progress import LoadProgress
from paged_chat.engine.request import BeamPreview, FinishReason

from ..chats import MessageStatus, ReplyCost
from ..transcript.miss_reason import MissReason
from .send_plan import SendPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyUpdate:
    """A reply as far as it has come.

    Always: `text` is whole and ends with `new_text`, and what precedes `new_text` is the text that the same watcher
    was told before. The first update of a reply has all of its text as new. So a screen may replace or append; one
    that appends begins anew where `new_text` is the whole text.

    status: "draft" while it grows; the last update of a reply has another.
    num_generated_tokens: 0 while it waits for the model to load, for its turn, or for its prompt.
    tokens_per_s: after the first token; None before the second.
    cost: with the last update.
    cost_so_far: from the moment when it is known what the prompt reuses; at the end the same as `cost`.
    plan: what the prompt reuses and leaves out, from the moment when that is known.
    miss: why the prompt found no more in the cache, as far as that is known.
    search: how far the beam search has come that writes it; its best beam is a preview, no part of `text`.
    request_id: of the engine's request, shared by replies side by side: it names the reply in block events.
    error: why it failed.
    save_error: why its end isn't on the disk yet; the service goes on trying.
    """

    chat_id: str
    message_id: int
    parent_id: int | None
    text: str
    new_text: str
    status: MessageStatus
    num_generated_tokens: int = 0
    tokens_per_s: float | None = None
    finish_reason: FinishReason | None = None
    cost: ReplyCost | None = None
    cost_so_far: ReplyCost | None = None
    plan: SendPlan | None = None
    miss: MissReason | None = None
    request_id: str | None = None
    search: BeamPreview | None = None
    error: str | None = None
    save_error: str | None = None

    @property
    def has_ended(self) -> bool:
        return self.status != "draft"


@dataclass(frozen=True, slots=True)
class ChatChanged:
    """Something about the chat or its tree is new, done here, in another tab, or by another process: read it again.

    is_deleted: there is no such chat any more.
    """

    chat_id: str
    is_deleted: bool = False


@dataclass(frozen=True, slots=True)
class ChatsChanged:
    """The list of chats is new: one came, went, moved, was renamed, or began or ended a reply."""


EnginePhase = Literal["loading", "ready", "failed", "closed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFetch:
    """A model that was chosen and is being downloaded while another one answers.

    error: why it won't be taken, and what to do; then the other one stays.
    """

    model: str
    progress: LoadProgress | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStatus:
    """How the model stands.

    model: as it was asked for while it loads, as the engine calls it afterwards.
    progress: the newest report while it loads.
    window: most tokens of prompt and reply together, once it is ready.
    load_s: seconds that loading took, once it is ready.
    error: why it failed, and what to do, for people to read.
    server: where the engine runs, if that is in another process.
    fetch: what is to take its place once it is on this machine.
    """

    phase: EnginePhase
    model: str
    progress: LoadProgress | None = None
    window: int | None = None
    load_s: float | None = None
    error: str | None = None
    server: str | None = None
    fetch: ModelFetch | None = None


ChatEvent: TypeAlias = ReplyUpdate | ChatChanged
AppEvent: TypeAlias = EngineStatus | ChatsChanged
