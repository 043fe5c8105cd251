"""A conversation in the terminal: written, streamed, stopped, written again."""

from terminal import open_terminal


async def test_a_message_is_sent_streamed_and_stored(desk):
    async with open_terminal(desk) as terminal:
        await terminal.send("hello", "# Hi\n\nthere")
        assert terminal.texts == ["hello", "# Hi\n\nthere"]
        [chat] = desk.service.chats()
        assert chat.title == "hello"
        assert desk.texts(chat) == ["hello", "# Hi\n\nthere"]
