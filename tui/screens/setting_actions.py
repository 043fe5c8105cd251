"""How replies of a chat are drawn, its system prompt, and what of them is kept under a name."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack

from paged_chat.app.errors import PagedChatError
from paged_chat.app.written_setting import in_spoken_names, setting_words

from ..notices import in_background
from .service_screen import ServiceScreen

if TYPE_CHECKING:
    from paged_chat.app.store.chat_table import ChatChanges


class PresetMissing(PagedChatError):
    """Nothing is kept under this name, or there is nothing that could be kept."""


class SettingActions(ServiceScreen):
    """The settings' part of the chat screen."""

    @in_background
    async def action_settings(self) -> None:
        if self.service is None:
            return
        from .settings_screen import ChatSettings, SettingsScreen

        own = ChatSettings(self.system_prompt, self.sampling)
        changes = await self.app.push_screen_wait(SettingsScreen(self.service, own))
        if changes is not None:
            await self._change(system_prompt=changes.system_prompt, sampling=changes.sampling)

    async def _change(self, **changes: Unpack[ChatChanges]) -> None:
        """A chat that has nothing in it yet isn't stored for this: what is chosen waits for its first message."""
        async with self.making_chat:
            if self.chat is None:
                self.new_system_prompt = changes.get("system_prompt", self.new_system_prompt)
                self.new_sampling = changes.get("sampling", self.new_sampling)
                self.show_title()
                return
            chat = self.chat
        changed = await self.write(self.open_service.update_chat, chat.id, **changes)
        if self.chat is not None and self.chat.id == changed.id:
            self.chat = changed  # the next command may come before the news of this one, and goes on from here

    async def set_sampling(self, **changes: Any) -> None:
        """Changes the chat's sampling parameters, each within the range that the engine allows."""
        with in_spoken_names():
            sampling = replace(self.sampling, **changes)
        await self._change(sampling=sampling)
        words = ", ".join(setting_words(name, value) for name, value in changes.items())
        self.notify(f"This chat: {words}", markup=False)

    async def set_system_prompt(self, text: str) -> None:
        """The chat's own; "-" takes it away, nothing shows it."""
        if text:
            await self._change(system_prompt=None if text == "-" else text)
            self.notify("System prompt taken away." if text == "-" else "This chat has a new system prompt.")
        else:
            self.notify(self.system_prompt or "This chat has no system prompt of its own.", markup=False)

    # Kept under a name

    async def use_preset(self, name: str) -> None:
        presets = self.open_service.sampling_presets()
        if not name:
            self.notify(
                ", ".join(presets) or "No presets yet: /save-preset NAME keeps this chat's settings", markup=False
            )
            return
        if name not in presets:
            raise PresetMissing(f"no preset is called {name}: /preset lists them")
        await self._change(sampling=presets[name])
        self.notify(f"This chat uses {name}", markup=False)

    async def save_preset(self, name: str) -> None:
        if not name:
            raise PresetMissing("/save-preset needs a name behind it")
        await self.write(self.open_service.save_sampling_preset, name, self.sampling)
        self.notify(f"Kept as {name}: /preset {name} brings it back", markup=False)

    async def use_system_prompt(self, name: str) -> None:
        prompts = self.open_service.system_prompts()
        if not name:
            words = ", ".join(prompts) or "No system prompts are kept yet: /save-system NAME keeps this chat's"
            self.notify(words, markup=False)
            return
        if name not in prompts:
            raise PresetMissing(f"no system prompt is called {name}: /use-system lists them")
        await self.set_system_prompt(prompts[name])

    async def save_system_prompt(self, name: str) -> None:
        text = self.system_prompt
        if not name:
            raise PresetMissing("/save-system needs a name behind it")
        if text is None:
            raise PresetMissing("this chat has no system prompt of its own: /system TEXT gives it one")
        await self.write(self.open_service.save_system_prompt, name, text)
        self.notify(f"Kept as {name}: /use-system {name} brings it back", markup=False)

    async def forget_preset(self, name: str) -> None:
        """Takes away what is kept under a name, settings or a system prompt; chats that use it keep theirs."""
        if not name:
            raise PresetMissing("/forget needs a name behind it: /preset and /use-system list what is kept")
        service = self.open_service
        if name not in service.sampling_presets() and name not in service.system_prompts():
            raise PresetMissing(f"nothing is kept under {name!r}: /preset and /use-system list what is")
        await self.write(service.delete_sampling_preset, name)
        await self.write(service.delete_system_prompt, name)
        self.notify(f"{name} is forgotten.", markup=False)
