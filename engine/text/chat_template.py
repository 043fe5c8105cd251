"""A model's chat template: messages to the text that the model was trained to read."""

from collections.abc import Sequence
from functools import cached_property

from jinja2 import Template, TemplateError

from ..errors import ChatTemplateInvalid
from .chat_message import ChatMessage
from .template_budget import RenderLimits, limited
from .template_environment import TemplateEnvironment, TemplateRefusal
from .tokenizer import Tokenizer

# Compiling takes far longer than rendering, and can't be stopped.
MAX_TEMPLATE_CHARS = 100_000


class ChatTemplate:
    """Renders chats with the template that came with the model.

    - A template that has no place for a system message gets it folded into the user message that follows.
    - A model without a template has no chat form that we could guess: rendering raises ChatTemplateInvalid, and the
      model still serves raw prompts (`Tokenizer.encode_prompt`).
    """

    def __init__(self, tokenizer: Tokenizer, source: str | None = None, limits: RenderLimits | None = None) -> None:
        """`source` replaces the tokenizer's own template. A faulty template is reported when it is first used."""
        self._tokenizer = tokenizer
        self.source = tokenizer.chat_template if source is None else source
        self._limits = limits or RenderLimits()
        self._environment = TemplateEnvironment()

    def render(self, messages: Sequence[ChatMessage], add_generation_prompt: bool = True) -> str:
        """The chat as text; with `add_generation_prompt` it ends where the assistant's reply begins.

        For people to read: a message may hold the text of a control token here. `ChatEncoder` keeps them apart.

        Raises ChatTemplateInvalid where there is no template, or it is faulty, or it refuses these messages.
        """
        return self._render(self._with_system_placed(messages), add_generation_prompt)

    @cached_property
    def _compiled(self) -> Template:
        if self.source is None:
            raise ChatTemplateInvalid(
                "this model comes without a chat template; take a model made for chat (an 'instruct' one), put a "
                "chat_template.jinja beside its weights, or give it a raw prompt instead of a chat"
            )
        if len(self.source) > MAX_TEMPLATE_CHARS:
            raise ChatTemplateInvalid(f"the chat template has more than {MAX_TEMPLATE_CHARS:,} characters")
        try:
            with limited(self._limits):
                return self._environment.from_string(self.source)
        except (Exception, MemoryError) as fault:  # deep nesting trips Jinja or Python's compiler in various ways
            raise ChatTemplateInvalid(f"the model's chat template can't be read: {_said(fault)}") from fault

    def _render(self, messages: list[ChatMessage], add_generation_prompt: bool) -> str:
        """Raises ChatTemplateInvalid; caused by a TemplateRefusal where the template itself raised."""
        template = self._compiled
        limits = self._limits.with_messages(sum(len(message.content) for message in messages))
        pieces: list[str] = []
        num_chars = 0
        try:
            with limited(limits):
                for piece in template.generate(
                    messages=[{"role": message.role, "content": message.content} for message in messages],
                    add_generation_prompt=add_generation_prompt,
                    bos_token=self._tokenizer.bos_token or "",
                    eos_token=self._tokenizer.eos_token or "",
                    tools=None,
                    documents=None,
                ):
                    num_chars += len(piece)
                    if num_chars > limits.max_chars:
                        raise ChatTemplateInvalid(f"the chat template writes more than {limits.max_chars:,} characters")
                    pieces.append(piece)
        except TemplateRefusal as refusal:
            raise ChatTemplateInvalid(f"the model's chat template refuses these messages: {refusal}") from refusal
        except ChatTemplateInvalid:
            raise
        except (Exception, MemoryError) as fault:  # a template can trip over anything; it is the model's, not ours
            raise ChatTemplateInvalid(f"the model's chat template failed: {_said(fault)}") from fault
        return "".join(pieces)

    @cached_property
    def _takes_system_messages(self) -> bool:
        """Whether a system message comes out of the template: some refuse the role, some leave it out silently."""
        probe = "Be brief"
        try:
            text = self._render([ChatMessage("system", probe), ChatMessage("user", "Hello")], True)
        except ChatTemplateInvalid as fault:
            return not isinstance(fault.__cause__, TemplateRefusal)
        return probe in text

    def _with_system_placed(self, messages: Sequence[ChatMessage]) -> list[ChatMessage]:
        has_system = any(message.role == "system" for message in messages)
        return fold_system(messages) if has_system and not self._takes_system_messages else list(messages)


def fold_system(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Move the text of system messages to the start of the user message that follows.

    Where no user message follows, or an assistant's message opens the chat, it becomes a user message of its own.
    """
    folded: list[ChatMessage] = []
    waiting: list[str] = []
    for message in messages:
        if message.role == "system":
            waiting.append(message.content)
        elif message.role == "user" and waiting:
            folded.append(ChatMessage("user", "\n\n".join([*waiting, message.content])))
            waiting = []
        else:
            if waiting and not folded:
                folded.append(ChatMessage("user", "\n\n".join(waiting)))
                waiting = []
            folded.append(message)
    if waiting:
        folded.append(ChatMessage("user", "\n\n".join(waiting)))
    return folded


def _said(fault: BaseException) -> str:
    if isinstance(fault, TemplateError):
        return fault.message or type(fault).__name__
    return f"{type(fault).__name__}: {fault}"
