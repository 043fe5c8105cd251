"""What the settings' Gradio events do: read a chat's settings into the components, and write them back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from html import escape
from typing import Any

import gradio as gr

from paged_chat.engine.errors import InvalidParameter, PagedChatError
from paged_chat.engine.model.catalog import list_models
from paged_chat.engine.request import SamplingParams

from ..chats import Chat
from ..errors import ModelInUse
from ..mended_text import mended
from ..service.chat_service import ChatService
from ..service.default_sampling import GENERAL_SAMPLING
from ..written_setting import in_spoken_names
from .setting_labels import QUOTED_LABELS

Update = dict[str, Any]  # what gr.update gives


@dataclass(frozen=True, slots=True)
class SamplingForm:
    """Sampling settings as the components hold them, in the components' order."""

    temperature: float
    top_p: float
    top_k: float
    min_p: float
    repetition_penalty: float
    presence_penalty: float
    frequency_penalty: float
    max_tokens: float | None
    num_replies: float
    seed: float | None
    stop: str  # one on each line
    num_alternatives: float  # 0 keeps none
    beam_width: float
    length_penalty: float
    early_stopping: str  # "true", "false" or "never"

    @staticmethod
    def of(sampling: SamplingParams) -> SamplingForm:
        return SamplingForm(
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            min_p=sampling.min_p,
            repetition_penalty=sampling.repetition_penalty,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
            max_tokens=sampling.max_tokens,
            num_replies=sampling.n,
            seed=sampling.seed,
            stop="\n".join(sampling.stop),
            num_alternatives=sampling.logprobs or 0,
            beam_width=sampling.beam_width,
            length_penalty=sampling.length_penalty,
            early_stopping=str(sampling.early_stopping).lower(),
        )

    def over(self, sampling: SamplingParams) -> SamplingParams:
        """These settings, and what no component shows from `sampling`. Raises InvalidParameter, with their labels."""
        with in_spoken_names(QUOTED_LABELS):
            return replace(
                sampling,
                temperature=self.temperature,
                top_p=self.top_p,
                top_k=_whole(self.top_k),
                min_p=self.min_p,
                repetition_penalty=self.repetition_penalty,
                presence_penalty=self.presence_penalty,
                frequency_penalty=self.frequency_penalty,
                max_tokens=_whole(self.max_tokens),
                n=_whole(self.num_replies),
                seed=_whole(self.seed),
                stop=tuple(line for line in str(self.stop).split("\n") if line),
                logprobs=None if self.num_alternatives == 0 else _whole(self.num_alternatives),
                beam_width=_whole(self.beam_width),
                length_penalty=self.length_penalty,
                early_stopping="never" if self.early_stopping == "never" else self.early_stopping == "true",
            )

    @property
    def values(self) -> list[Any]:
        return [getattr(self, name) for name in self.__slots__]


def _whole(value: Any) -> Any:
    """A slider's number as a whole one; what isn't one stays as it is, for SamplingParams to refuse by its name."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class SettingsHandlers:
    """Each method is the function of one event; its arguments and results are the components' values in order."""

    def __init__(self, service: ChatService) -> None:
        self._service = service

    def load(self, chat_id: str, request: gr.Request) -> list[Any]:
        """The chat that the settings are of from now on, its system prompt, its sampling, and what can be chosen.

        chat_id: "" is the chat that would begin now. The page begins it before it asks for a change of it.
        """
        with _shown_to_people():
            chat = self._chat_or_new(chat_id, request)
            return [
                chat.id,
                self._service.engine_status.model,
                gr.update(
                    choices=sorted({*(model.name for model in list_models()), self._service.engine_status.model})
                ),
                gr.update(visible=False),
                gr.update(visible=False),
                gr.update(visible=False),
                chat.system_prompt or "",
                gr.update(choices=list(self._service.system_prompts()), value=None),
                gr.update(choices=list(self._service.sampling_presets()), value=None),
                *self._sampling(chat),
            ]

    def save_system_prompt(self, chat_id: str, text: str, request: gr.Request) -> None:
        with _shown_to_people():
            text = _text(text)
            if not chat_id and not text:  # nothing is set yet
                return
            chat = self._chat(chat_id, request)
            if (chat.system_prompt or "") != text:
                self._service.update_chat(chat.id, system_prompt=text if text.strip() else None)

    def save_sampling(self, request: gr.Request, chat_id: str, *values: Any) -> list[Any]:
        """Gives what is wrong with settings that can't be used together: it stands there until they can."""
        with _shown_to_people():
            chat = self._chat(chat_id, request)
            try:
                sampling = SamplingForm(*values).over(chat.sampling)
            except InvalidParameter as error:
                return [gr.update(value=f"Not kept yet: {error}.", visible=True), gr.update()]
            if sampling != chat.sampling:
                self._service.update_chat(chat.id, sampling=sampling)
            return [gr.update(visible=False), self._origin(sampling)]

    def reset_sampling(self, chat_id: str, request: gr.Request) -> list[Any]:
        with _shown_to_people():
            chat = self._chat_or_new(chat_id, request)
            return self._kept_sampling(chat, self._service.default_sampling)

    # Presets

    def use_system_prompt(self, chat_id: str, name: str | None, request: gr.Request) -> str | Update:
        with _shown_to_people():
            text = self._service.system_prompts().get(_text(name))
            if text is None:
                return gr.update()
            self.save_system_prompt(chat_id, text, request)
            return text

    def keep_system_prompt(self, name: str | None, text: str) -> Update:
        with _shown_to_people():
            self._service.save_system_prompt(_named(name), _text(text))
            return gr.update(choices=list(self._service.system_prompts()), value=_named(name))

    def drop_system_prompt(self, name: str | None) -> Update:
        with _shown_to_people():
            self._service.delete_system_prompt(_named(name))
            return gr.update(choices=list(self._service.system_prompts()), value=None)

    def use_sampling(self, chat_id: str, name: str | None, request: gr.Request) -> list[Any]:
        with _shown_to_people():
            chat = self._chat_or_new(chat_id, request)
            sampling = self._service.sampling_presets().get(_text(name), chat.sampling)
            return self._kept_sampling(chat, sampling)

    def keep_sampling(self, request: gr.Request, chat_id: str, name: str | None, *values: Any) -> list[Any]:
        with _shown_to_people():
            sampling = SamplingForm(*values).over(GENERAL_SAMPLING)
            self._service.save_sampling_preset(_named(name), sampling)
            return self._presets_and_origin(_named(name), chat_id, request)

    def drop_sampling(self, chat_id: str, name: str | None, request: gr.Request) -> list[Any]:
        with _shown_to_people():
            self._service.delete_sampling_preset(_named(name))
            return self._presets_and_origin(None, chat_id, request)

    def _presets_and_origin(self, chosen: str | None, chat_id: str, request: gr.Request) -> list[Any]:
        return [
            gr.update(choices=list(self._service.sampling_presets()), value=chosen),
            self._origin(self._chat_or_new(chat_id, request).sampling),
        ]

    # The model

    def switch_model(self, chat_id: str, model: str | None, request: gr.Request) -> list[Any]:
        """What is wrong with the model stands there until another is chosen.

        Where it would end what others do, the button shows that does it all the same.
        """
        return self._switch_model(chat_id, model, request, force=False)

    def force_model(self, chat_id: str, model: str | None, request: gr.Request) -> list[Any]:
        return self._switch_model(chat_id, model, request, force=True)

    def _switch_model(self, chat_id: str, model: str | None, request: gr.Request, *, force: bool) -> list[Any]:
        try:
            self._service.switch_model(_text(model).strip(), force=force)
        except PagedChatError as error:
            is_in_use = isinstance(error, ModelInUse)
            return [gr.update(value=escape(f"{error}."), visible=True), gr.update(visible=is_in_use), gr.update()]
        with _shown_to_people():  # something else may be recommended for it
            origin = self._origin(self._chat_or_new(chat_id, request).sampling)
        return [gr.update(visible=False), gr.update(visible=False), origin]

    # What the fields show

    def _sampling(self, chat: Chat) -> list[Any]:
        """What the fields hold, and where that comes from."""
        return [*SamplingForm.of(chat.sampling).values, self._origin(chat.sampling)]

    def _kept_sampling(self, chat: Chat, sampling: SamplingParams) -> list[Any]:
        """What the fields show, where that comes from, and no fault: nothing waits to be kept any more."""
        if sampling != chat.sampling:
            chat = self._service.update_chat(chat.id, sampling=sampling)
        return [*self._sampling(chat), gr.update(visible=False)]

    def _origin(self, sampling: SamplingParams) -> str:
        """In words; for the page's script also what each field goes back to."""
        suited = json.dumps(asdict(SamplingForm.of(self._service.default_sampling)))
        return f'<p data-suited="{escape(suited)}">{escape(self._service.sampling_origin(sampling))}</p>'

    def _chat_or_new(self, chat_id: str, request: gr.Request) -> Chat:
        return self._chat(chat_id, request) if chat_id else self._service.unbegun_chat(user=request.username or "")

    def _chat(self, chat_id: str, request: gr.Request) -> Chat:
        return self._service.chat(_text(chat_id), request.username or "")


def _named(name: str | None) -> str:
    if not _text(name).strip():
        raise gr.Error("Which one? Type a name into the field beside the button.", print_exception=False)
    return _text(name).strip()


def _text(chosen: Any) -> str:
    """A text as a request holds it: whatever it is, or nothing."""
    return "" if chosen is None else mended(str(chosen))


@contextmanager
def _shown_to_people() -> Iterator[None]:
    """Turns what the service refuses into a notice on the page."""
    try:
        yield
    except PagedChatError as error:
        raise gr.Error(str(error), print_exception=False) from error
