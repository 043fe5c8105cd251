"""What the page's own requests carry, checked before anything is done."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field

from ..attachments import Attachment, file_name

# A question with ten of the largest attachments; what the model's window holds is much less.
MAX_TEXT_LENGTH = 10_000_000

Text = Annotated[str, Field(max_length=MAX_TEXT_LENGTH)]
NumReplies = Annotated[int, Field(ge=1, le=16, strict=True)]


class AttachedText(BaseModel):
    """A text file whose content the page has."""

    name: Annotated[str, Field(max_length=255)]
    text: Text

    def as_attachment(self) -> Attachment:
        return Attachment(file_name(self.name), self.text)


class Question(BaseModel):
    """A message to send, or one to put in the place of `message_id`.

    parent_id: the reply that it answers, as the page shows it; None at the beginning of a chat.
    """

    text: Text = ""
    parent_id: int | None = None
    message_id: int | None = None
    n: NumReplies | None = None
    attachments: Annotated[list[AttachedText], Field(max_length=16)] = []

    @property
    def attached(self) -> list[Attachment]:
        return [attached.as_attachment() for attached in self.attachments]


class NewChat(BaseModel):
    is_temporary: bool = False


class ChatUpdate(BaseModel):
    """What of a chat is to change; None stays."""

    title: Annotated[str, Field(min_length=1, max_length=300)] | None = None
    is_pinned: bool | None = None
    is_archived: bool | None = None


class Retry(BaseModel):
    n: NumReplies = 1


class PlainText(BaseModel):
    text: Text
