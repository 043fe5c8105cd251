"""What a person can do with a reply's tokens."""

from __future__ import annotations

import asyncio

from ..notices import in_background
from .service_screen import NotPossible, ServiceScreen


class TokenActions(ServiceScreen):
    """The tokens' part of the chat screen."""

    @in_background
    async def action_tokens(self) -> None:
        """Shows the reply in focus token by token, and branches where the person wants it."""
        from .tokens_screen import TokensScreen

        message = self.message_in_focus("assistant")
        if message is None:
            raise NotPossible("there is no reply yet whose tokens could be shown")
        service = self.open_service
        reply = await asyncio.wrap_future(service.tokens.of_reply(message.chat_id, message.id))
        branch = await self.app.push_screen_wait(TokensScreen(service, message.chat_id, reply))
        if branch is not None:
            await self.write(service.branch_at_token, message.chat_id, message.id, branch.token_index, branch.token_id)
            self.selected_id = None
            self.conversation.anchor()
