"""One question under several settings: asked from the prompt, and its replies compared."""

from __future__ import annotations

import asyncio
import shlex
from pathlib import PurePath
from typing import get_args

from paged_chat.app.comparison.comparison import Comparison
from paged_chat.app.comparison.table import TableForm, write_table
from paged_chat.app.comparison.variant import read_variants, variant_in
from paged_chat.app.errors import ComparisonRefused

from ..key_names import key_of
from ..notices import in_background, with_notices
from ..widgets.reply_group import ReplyGroup
from .dialogs import TextDialog
from .service_screen import NotPossible, ServiceScreen


class ComparisonActions(ServiceScreen):
    """The comparisons' part of the chat screen."""

    # Asking

    @with_notices
    def begin_comparison(self, words: str) -> None:
        """The next message is asked under these settings: presets, or name=value, with spaces between."""
        try:
            parts = shlex.split(words)
        except ValueError:
            raise ComparisonRefused("a quotation mark is missing its other half") from None
        kept = self.open_service.kept_settings()
        written = [variant_in(part, kept) for part in parts]
        self.variants = read_variants(written, self.sampling, self.system_prompt, kept)
        names = " | ".join(variant.name for variant in self.variants)
        self.prompt.border_title = f"compare {names}: Enter asks all, Esc leaves it"
        self.prompt.add_class("editing")
        self.prompt.focus()

    def end_comparison(self) -> None:
        """The next message is asked once again."""
        self.variants = []
        self.prompt.border_title = None
        self.prompt.remove_class("editing")

    # What differs

    @with_notices
    async def action_toggle_diff(self) -> None:
        """What of each reply isn't in the one that was looked at last; once more, the replies as they are."""
        group = self._group()
        if self.diff_reference_id is not None:
            self.diff_reference_id = None
        else:
            self.diff_reference_id = group.shown_view.message.id
        await self.show_diff()

    async def show_diff(self) -> None:
        """Draws what differs, as the replies are now; or the replies alone."""
        for group in self.query(ReplyGroup):
            if self.diff_reference_id not in group.message_ids:
                await group.show_diff(None, {})
                continue
            comparison = self._comparison(group)
            spans = await asyncio.to_thread(comparison.diff, self.diff_reference_id)
            await group.show_diff(self.diff_reference_id, spans)

    # Taking along

    @in_background
    async def action_export_table(self) -> None:
        self._group()
        path = await self.app.push_screen_wait(TextDialog("Export the table to (.md, .json or .csv)", "comparison.md"))
        if path:
            self.export_table(path)

    @in_background
    async def export_table(self, path: str) -> None:
        """Writes the replies side by side to a file that isn't there yet, in the format that its name says."""
        comparison = self._comparison(self._group())
        form = next((form for form in get_args(TableForm) if PurePath(path).suffix == f".{form}"), None)
        if form is None:
            raise ComparisonRefused(f"{path} names no kind of file: end it with .md, .json or .csv")
        await self.write_file(path, lambda out: out.write(write_table(comparison, form)), "Exported to")

    def _group(self) -> ReplyGroup:
        group = next(iter(self.query(ReplyGroup)), None)
        if group is None:
            raise NotPossible(f"no replies stand side by side: {key_of(self, 'compare')} shows all of a message")
        return group

    def _comparison(self, group: ReplyGroup) -> Comparison:
        assert self.chat is not None, "replies side by side in no chat"
        return self.open_service.comparison(self.chat.id, group.message_ids)
