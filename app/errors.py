"""What can go wrong with chats and where they are kept; each message says what to do next."""

# Also for the terminal's screens, which import nothing of the engine.
from paged_chat.engine.errors import PagedChatError as PagedChatError


def words_of(error: BaseException) -> str:
    """What people read: a PagedChatError says all there is to say; any other is a fault, of which the kind is told."""
    return str(error) if isinstance(error, PagedChatError) else f"{type(error).__name__}: {error}"


class ChatNotFound(PagedChatError):
    """No such chat, a deleted one, or somebody else's: which of these isn't told."""


class MessageNotFound(PagedChatError):
    """No such message in this chat, or a deleted one."""


class ReplyFinished(PagedChatError):
    """A reply that this program isn't writing: it is finished, or another one goes on with it."""


class CannotContinue(PagedChatError):
    """A message that can't grow on: not a reply, complete, being written already, or answered."""


class CannotBranch(PagedChatError):
    """A place where no reply can part: not in a reply, behind its end, or with a token that there isn't."""


class ComparisonRefused(PagedChatError):
    """Settings that can't be compared: which, and why; nothing was sent."""


class StoreTooNew(PagedChatError):
    """A database of a newer schema than this version knows; nothing was written to it."""


class StoreDamaged(PagedChatError):
    """A file that isn't a database, isn't one of ours, or is broken."""


class StoreBusy(PagedChatError):
    """Another program holds the database; nothing was saved, and saving can be tried again."""


class DiskFull(PagedChatError):
    """No space to save in; nothing was saved, and saving can be tried again."""


class StoreUnavailable(PagedChatError):
    """The database can't be reached or written: permissions, a missing folder, a failing disk, a closed store."""


class ExportRefused(PagedChatError):
    """A file that can't be written, or that is there already; nothing was written."""


class ImportRefused(PagedChatError):
    """A file that can't be imported; the message names the place of the fault, and nothing was imported."""


class EmptyMessage(PagedChatError):
    """A message without a word in it."""


class ReplyRunning(PagedChatError):
    """What was asked can't be done while this reply is being written."""


class ModelInUse(PagedChatError):
    """Another model can't take this one's place without ending what it is doing; that can be forced."""


class EngineUnavailable(PagedChatError):
    """The model didn't load, or its engine has stopped: chats can be read, but nothing answers."""


def service_closed() -> EngineUnavailable:
    """What is asked while the program ends."""
    return EngineUnavailable("the chat service is closed: start the program again")


class AttachmentRefused(PagedChatError):
    """A file that can't go with a message: unreadable, not text, empty, or too large."""
