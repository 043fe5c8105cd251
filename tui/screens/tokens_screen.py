"""A reply token by token over the conversation: what else could have stood there, and what a branch costs."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from rich.style import Style
from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.events import Resize
from textual.screen import ModalScreen
from textual.widgets import Label, OptionList, Static
from textual.widgets.option_list import Option

from paged_chat.app.errors import PagedChatError
from paged_chat.app.token_view.reply_tokens import Alternative, ReplyTokens
from paged_chat.app.token_view.token_words import (
    BRANCH,
    NOT_KEPT,
    PLAIN_TEXT,
    WEIGHED,
    WORK_OUT,
    WRITTEN,
    Surety,
    choice_words,
    percent,
    place_words,
)

from ..messages import TokenPointed
from ..notices import with_notices
from ..widgets.token_text import TokenText, look_style

if TYPE_CHECKING:
    from paged_chat.app.service.chat_service import ChatService

PLAN_PAUSE_S = 0.15  # so long the cursor rests before the cost is asked for
BAR_COLUMNS = 20
ROOMY = 30  # lines from which there is room for a legend
HINT = f"arrows: a token · Enter: its alternatives, then {BRANCH.lower()} · Esc: back"


@dataclass(frozen=True, slots=True)
class BranchChoice:
    """Where a person branches, and what is to stand there."""

    token_index: int
    token_id: int


class TokensScreen(ModalScreen[BranchChoice | None]):
    """Gives the branch that was chosen; its cost is told before."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "back", "back"),
        Binding("enter", "to_list", "alternatives", show=False),
    ]

    def __init__(self, service: ChatService, chat_id: str, reply: ReplyTokens) -> None:
        super().__init__(classes="dialog wide")
        self._service, self._chat_id, self._reply = service, chat_id, reply
        self._plans: dict[int, str] = {}  # in words, by the token's index

    def compose(self) -> ComposeResult:
        with Vertical(classes="box"):
            note = PLAIN_TEXT if self._reply.has_alternatives else f"{PLAIN_TEXT} {NOT_KEPT}"
            yield Label(note, classes="hint", markup=False)
            yield TokenText(self._reply)
            yield Static(id="legend")
            yield Label("", id="place", markup=False)
            yield OptionList(markup=False)
            yield Label("", id="cost", markup=False)
            yield Label(HINT, classes="hint", markup=False)

    def on_mount(self) -> None:
        self.query_one(TokenText).focus()

    def on_resize(self, event: Resize) -> None:
        self.set_class(event.size.height < ROOMY, "low")
        self._draw_legend()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        if self.is_mounted:
            self._draw_legend()

    # What a person does

    @on(TokenPointed)
    def show_token(self, event: TokenPointed) -> None:
        token = self.query_one(TokenText).token
        if token is None or token.index != event.index:
            return  # the cursor has gone on
        self.query_one("#place", Label).update(place_words(token, len(self._reply.tokens)))
        choices = self.query_one(OptionList)
        choices.clear_options()
        choices.add_options(Option(_line(alternative)) for alternative in token.alternatives)
        choices.display = bool(token.alternatives)
        if token.alternatives:
            choices.highlighted = next((i for i, one in enumerate(token.alternatives) if not one.is_written), 0)
        self._show_cost()
        self._plan(token.index)

    @on(OptionList.OptionHighlighted)
    def show_choice(self) -> None:
        self._show_cost()

    def action_to_list(self) -> None:
        token = self.query_one(TokenText).token
        if token is not None and not token.alternatives:
            self._weigh(token.index)
        elif token is not None:
            self.query_one(OptionList).focus()

    def action_back(self) -> None:
        text = self.query_one(TokenText)
        if text.has_focus:
            self.dismiss(None)
        else:
            text.focus()

    @on(OptionList.OptionSelected)
    def branch(self, event: OptionList.OptionSelected) -> None:
        token = self.query_one(TokenText).token
        if token is not None:
            alternative = token.alternatives[event.option_index]
            self.dismiss(BranchChoice(token.index, alternative.piece.token_id))

    @work(exclusive=True, group="weigh", exit_on_error=False)
    @with_notices
    async def _weigh(self, index: int) -> None:
        """Works out what wasn't kept, and goes to the list of it."""
        weighed = self._service.tokens.alternatives_at(self._chat_id, self._reply.message_id, index)
        text = self.query_one(TokenText)
        text.replace(await asyncio.wrap_future(weighed))
        if text.cursor == index:
            self.show_token(TokenPointed(index))
            self.query_one(OptionList).focus()

    # What it costs

    @work(exclusive=True, group="plan", exit_on_error=False)
    async def _plan(self, index: int) -> None:
        if index in self._plans:
            return
        await asyncio.sleep(PLAN_PAUSE_S)
        try:
            plan = await asyncio.wrap_future(
                self._service.plans.branch_at_token(self._chat_id, self._reply.message_id, index)
            )
            self._plans[index] = str(plan)
        except PagedChatError as error:
            self._plans[index] = str(error)
        self._show_cost()

    def _show_cost(self) -> None:
        """The choice in words, and its cost once that is known."""
        token, place = self.query_one(TokenText).token, self.query_one(OptionList).highlighted
        if token is None:
            return
        words = f"Enter: {WORK_OUT.lower()}"
        if place is not None and place < len(token.alternatives):
            words = choice_words(token, token.alternatives[place])
        if token.index in self._plans:
            words += f": {self._plans[token.index]}"
        self.query_one("#cost", Label).update(words)

    def _draw_legend(self) -> None:
        is_dark = self.app.current_theme.dark
        legend = Text()
        for surety in Surety:
            legend.append("token", look_style(surety, is_dark=is_dark))
            legend.append(f" {surety.look.words}   ")
        legend.append(f"\n{WEIGHED}")
        shown = self.query_one("#legend", Static)
        shown.update(legend)
        shown.display = self._reply.has_alternatives and self.size.height >= ROOMY


def _line(alternative: Alternative) -> Text:
    line = Text(f"{percent(alternative.probability):>8}  ", no_wrap=True, overflow="ellipsis")
    line.append("━" * max(1, round(alternative.probability * BAR_COLUMNS)), Style(dim=True))
    line.append(" " * (BAR_COLUMNS + 1 - max(1, round(alternative.probability * BAR_COLUMNS))))
    line.append(alternative.piece.label, Style(bold=True))
    if alternative.is_written:
        line.append(f"  {WRITTEN}", Style(dim=True))
    return line
