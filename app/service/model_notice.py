"""That another model answers than the one that a chat names."""

from __future__ import annotations

from dataclasses import dataclass

from paged_chat.engine.model.catalog import is_same_model

from ..chats import Chat


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelNotice:
    """A chat's replies are written by `answering`, though it names `named`.

    Sending doesn't change the model by itself: that takes long, and everybody's chats use the one that is loaded. A
    screen says so and offers `ChatService.switch_model(notice.named)`.
    """

    named: str
    answering: str

    def __str__(self) -> str:
        """Such as "smollm2-135m answers, not qwen3-0.6b, which this chat names"."""
        return f"{self.answering} answers, not {self.named}, which this chat names"


def model_notice(chat: Chat, answering: str) -> ModelNotice | None:
    """None for a chat that names no model, or the one that answers."""
    if chat.model is None or is_same_model(chat.model, answering):
        return None
    return ModelNotice(named=chat.model, answering=answering)
