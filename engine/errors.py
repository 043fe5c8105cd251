"""Every error that a caller can cause.

Each says what was wrong and what to do next, and is shown to people without a traceback.
"""


class PagedChatError(Exception):
    """Base of all errors that a user or caller can cause."""


class InvalidParameter(PagedChatError, ValueError):
    """A configuration or sampling value that is out of range; the message names the field, the value and the range."""


class PromptTooLong(PagedChatError):
    """A prompt that can never fit the model's window or the block pool."""


class EmptyPrompt(PagedChatError):
    """A prompt without tokens: there is nothing to continue."""


class ModelNotFound(PagedChatError):
    """No catalogue entry, folder, file or hub repository of that name."""


class ModelUnsupported(PagedChatError):
    """A model whose architecture, tensor type or option this engine doesn't run."""


class ModelFileInvalid(PagedChatError):
    """A truncated, damaged or hostile model file; the message names the file and the fault."""


class DownloadFailed(PagedChatError):
    """A model could not be fetched; nothing half-written is left behind."""


class TokenizerMissing(PagedChatError):
    """Text was given to, or asked of, a model folder that holds no tokenizer."""


class ChatTemplateInvalid(PagedChatError):
    """The model's chat template is missing, doesn't render, or refuses these messages."""


class StepFailed(PagedChatError):
    """The step that computed a request raised; the engine lives on, the request has ended."""


class EngineClosed(PagedChatError):
    """The engine was closed; make a new one."""


class OutOfMemory(PagedChatError):
    """The weights or the block pool don't fit the memory that is free."""
