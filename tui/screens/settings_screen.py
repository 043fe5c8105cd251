"""A chat's system prompt and sampling parameters, all in one place."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Grid, VerticalScroll
from textual.events import DescendantFocus, Resize
from textual.screen import ModalScreen
from textual.widgets import Input, Label, Select, Static, TextArea

from paged_chat.app.chats import SamplingParams
from paged_chat.app.errors import PagedChatError
from paged_chat.app.written_setting import allowed_words, as_written, in_spoken_names, read_setting, spoken

from ..notices import in_background
from ..slash_commands import COMMANDS, SettingName
from ..widgets.keys_in_order import LineField, TextField
from .dialogs import TextDialog

if TYPE_CHECKING:
    from paged_chat.app.service.chat_service import ChatService

SETTINGS: tuple[SettingName, ...] = get_args(SettingName)
KEYS = "Ctrl+S keeps, Esc leaves as it was"  # always in view; the fields may be more than fit
WIDE = 100  # columns from which a word about each setting stands beside it; narrower, only below, of the one in focus
HINT = "Ctrl+R sets all as in a new chat. F2 keeps the system prompt under a name, F3 the settings."


class NothingToKeep(PagedChatError):
    """An empty system prompt can't be kept under a name."""


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """A chat's own, or what was chosen in their place."""

    system_prompt: str | None
    sampling: SamplingParams


class SettingField(LineField):
    """A line among others, between which the arrows walk."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "app.focus_previous", show=False),
        Binding("down", "app.focus_next", show=False),
    ]


class SettingsScreen(ModalScreen[ChatSettings | None]):
    """Ctrl+S or Enter in a field keeps the settings; values out of range are refused with the range."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "back"),
        Binding("ctrl+s", "keep", "keep", priority=True),
        Binding("ctrl+r", "reset", "as a new chat", priority=True),
        Binding("f2", "save_prompt", "keep the system prompt", priority=True),
        Binding("f3", "save_preset", "keep the settings", priority=True),
    ]

    def __init__(self, service: ChatService, settings: ChatSettings) -> None:
        super().__init__(classes="dialog wide")
        self._service, self._settings = service, settings
        self._prompts = service.system_prompts()
        self._presets = service.sampling_presets()

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="box") as box:
            box.border_subtitle = KEYS
            yield Label("System prompt")
            yield TextField(self._settings.system_prompt or "", id="system", tab_behavior="focus")
            yield _choice("prompts", "take a kept one", self._prompts)
            yield Label("How replies are drawn")
            origin = self._service.sampling_origin(self._settings.sampling)
            yield Label(origin, id="origin", classes="hint", markup=False)
            with Grid(id="settings"):
                for name in SETTINGS:
                    yield Label(spoken(name))
                    yield SettingField(as_written(getattr(self._settings.sampling, name)), id=name, compact=True)
                    yield Label(_title(name), classes="hint", markup=False)
            yield _choice("presets", "take kept ones", self._presets)
            yield Static(HINT, id="about", classes="hint", markup=False)

    def on_resize(self, event: Resize) -> None:
        self.set_class(event.size.width < WIDE, "narrow")

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        name = next((name for name in SETTINGS if name == event.widget.id), None)
        self.query_one("#about", Static).update(HINT if name is None else _about(name))

    def on_select_changed(self, event: Select.Changed) -> None:
        if not isinstance(event.value, str):
            return
        if event.select.id == "prompts":
            self.query_one("#system", TextArea).load_text(self._prompts[event.value])
        else:
            self._show(self._presets[event.value])

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.action_keep()

    def action_reset(self) -> None:
        self.query_one("#system", TextArea).load_text("")
        self._show(self._service.default_sampling)

    @in_background
    async def action_keep(self) -> None:
        await self._all_typed()
        try:
            sampling = self._sampling()
        except PagedChatError as error:
            for name in SETTINGS:
                if str(error).startswith(f"{spoken(name)} "):
                    self.query_one(f"#{name}", Input).focus()
            raise
        self.dismiss(ChatSettings(self._system_prompt or None, sampling))

    # Kept under a name

    @in_background
    async def action_save_prompt(self) -> None:
        await self._all_typed()
        text = self._system_prompt
        if not text:
            raise NothingToKeep("there is no system prompt yet that could be kept: write one")
        if name := await self._ask_name("Keep the system prompt as"):
            await asyncio.to_thread(self._service.save_system_prompt, name, text)
            self._prompts = self._service.system_prompts()
            self._offer("prompts", self._prompts)

    @in_background
    async def action_save_preset(self) -> None:
        await self._all_typed()
        sampling = self._sampling()
        if name := await self._ask_name("Keep the settings as"):
            await asyncio.to_thread(self._service.save_sampling_preset, name, sampling)
            self._presets = self._service.sampling_presets()
            self._offer("presets", self._presets)

    async def _ask_name(self, question: str) -> str:
        return ((await self.app.push_screen_wait(TextDialog(question))) or "").strip()

    def _offer(self, choice_id: str, names: Iterable[str]) -> None:
        choice = self.query_one(f"#{choice_id}", Select)
        choice.set_options((name, name) for name in names)
        choice.display = True

    # Inside

    async def _all_typed(self) -> None:
        """Keys that work everywhere overtake letters, which may still wait for the field."""
        is_typed = asyncio.Event()
        (self.focused or self).call_later(is_typed.set)
        await is_typed.wait()

    @property
    def _system_prompt(self) -> str:
        return self.query_one("#system", TextArea).text.strip()

    def _sampling(self) -> SamplingParams:
        """The present ones with what stands in the fields; raises for what is no number or out of range."""
        changes: dict[str, Any] = {}
        for name in SETTINGS:
            changes[name] = read_setting(name, self.query_one(f"#{name}", Input).value.strip())
        with in_spoken_names():
            return replace(self._settings.sampling, **changes)

    def _show(self, sampling: SamplingParams) -> None:
        self.query_one("#origin", Label).update(self._service.sampling_origin(sampling))
        for name in SETTINGS:
            self.query_one(f"#{name}", Input).value = as_written(getattr(sampling, name))


def _choice(choice_id: str, words: str, names: Iterable[str]) -> Select[str]:
    """One of what is kept; not shown while nothing is."""
    choice = Select([(name, name) for name in names], prompt=words, id=choice_id)
    choice.display = bool(list(names))
    return choice


def _about(name: SettingName) -> str:
    """Such as "top p, 0 to 1. Draw from the tokens that reach this together"."""
    allowed = allowed_words(name)
    return f"{spoken(name)}{allowed and f', {allowed}'}. {_title(name)}"


def _title(name: SettingName) -> str:
    return next(command.title for command in COMMANDS if command.setting == name)
