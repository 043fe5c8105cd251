"""A chat's system prompt and sampling parameters, all in one place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Grid, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Label, Select, TextArea

from paged_chat.app.chats import Chat

from ..notices import with_notices
from ..slash_commands import COMMANDS, SettingName, setting_value

if TYPE_CHECKING:
    from paged_chat.app.service.chat_service import ChatService

SETTINGS: tuple[SettingName, ...] = get_args(SettingName)


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """What was chosen; `sampling` is the chat's SamplingParams with the changes."""

    system_prompt: str | None
    sampling: Any


class SettingsScreen(ModalScreen[ChatSettings | None]):
    """Ctrl+S or Enter in a field keeps the settings; values out of range are refused with the range."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "back"),
        Binding("ctrl+s", "keep", "keep", priority=True),
        Binding("ctrl+r", "reset", "as a new chat", priority=True),
    ]

    def __init__(self, service: ChatService, chat: Chat) -> None:
        super().__init__(classes="dialog wide")
        self._service, self._chat = service, chat
        self._prompts = service.system_prompts()
        self._presets = service.sampling_presets()

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="box"):
            yield Label("System prompt")
            yield TextArea(self._chat.system_prompt or "", id="system", tab_behavior="focus")
            if self._prompts:
                yield Select([(name, name) for name in self._prompts], prompt="take a kept one", id="prompts")
            yield Label("How replies are drawn")
            with Grid(id="settings"):
                for name in SETTINGS:
                    yield Label(name.replace("_", " "))
                    yield Input(_shown(getattr(self._chat.sampling, name)), id=name, compact=True)
                    yield Label(_title(name), classes="hint", markup=False)
            if self._presets:
                yield Select([(name, name) for name in self._presets], prompt="take a preset", id="presets")
            yield Label("Ctrl+S keeps, Ctrl+R sets all as in a new chat, Esc leaves as it was", classes="hint")

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

    @with_notices
    def action_keep(self) -> None:
        changes: dict[str, Any] = {}
        for name in SETTINGS:
            changes[name] = setting_value(name, self.query_one(f"#{name}", Input).value.strip())
        system_prompt = self.query_one("#system", TextArea).text.strip() or None
        self.dismiss(ChatSettings(system_prompt, replace(self._chat.sampling, **changes)))

    def _show(self, sampling: Any) -> None:
        for name in SETTINGS:
            self.query_one(f"#{name}", Input).value = _shown(getattr(sampling, name))


def _shown(value: float | int | None) -> str:
    return "-" if value is None else str(value)


def _title(name: SettingName) -> str:
    return next(command.title for command in COMMANDS if command.setting == name)
