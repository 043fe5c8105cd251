"""How long the terminal takes to draw: opening, scrolling and streaming into a chat of 500 messages.

    python tests/benchmarks/terminal_frames.py

A frame is the time from a change until the screen is drawn, processor time beside it since a busy machine stretches
the wall's. What a reply grows by is told to a screen at most 20 times a second, and that wait is in the wall time. The
engine is a fake one, so what is measured is the screen alone.
"""

import argparse
import asyncio
import gc
import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median, quantiles

ROOT = Path(__file__).parent.parent.parent
sys.path.append(str(ROOT / "tests" / "support"))

from chat_desk import ChatDesk  # noqa: E402
from fake_engine import FakeEngine  # noqa: E402
from long_chat import add_long_chat  # noqa: E402
from paged_chat.tui.widgets.message_view import MessageView  # noqa: E402
from terminal import Terminal, open_terminal  # noqa: E402

SIZE = (140, 45)
NUM_SCROLLS = 80
NUM_TOKENS = 120
NUM_STEPS_OF_PROMPT = 4  # it fills the window, and a step computes half of that


class Stopwatch:
    """Frames by what they draw: wall and processor time in ms."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._drawn = asyncio.Event()
        self.frames: dict[str, list[tuple[float, float]]] = {}

    async def frame(self, name: str, change: Callable[[], object], is_there: Callable[[], bool]) -> None:
        """From the change until it is there, and everything that waits is drawn."""
        wall, processor = time.perf_counter(), time.process_time()
        change()
        while not is_there():
            await asyncio.sleep(0.001)
        self._drawn.clear()
        self._terminal.screen.call_after_refresh(self._drawn.set)
        await self._drawn.wait()
        took = (time.perf_counter() - wall) * 1e3, (time.process_time() - processor) * 1e3
        self.frames.setdefault(name, []).append(took)

    def print(self) -> None:
        for name, frames in self.frames.items():
            walls, processors = [wall for wall, _ in frames], [processor for _, processor in frames]
            print(
                f"{name:<10} {len(frames):4} frames   wall median {median(walls):6.1f} ms, 95 % {_high(walls):6.1f} ms"
                f"   processor median {median(processors):6.1f} ms, 95 % {_high(processors):6.1f} ms"
            )


def is_longer(reply: MessageView, length: int) -> bool:
    return len(reply.answer) > length


def _high(values: Sequence[float]) -> float:
    return quantiles(values, n=20)[-1] if len(values) > 1 else values[0]


async def measure(desk: ChatDesk, num_messages: int) -> None:
    chat = add_long_chat(desk.store, num_messages)
    async with open_terminal(desk, size=SIZE) as terminal:
        stopwatch = Stopwatch(terminal)
        conversation = terminal.conversation
        start = time.perf_counter()
        await terminal.screen.open_chat(chat.id)
        await terminal.until(lambda: conversation.max_scroll_y > conversation.size.height)
        print(f"opening {num_messages} messages: {(time.perf_counter() - start) * 1e3:.0f} ms")
        gc.freeze()
        for _ in range(NUM_SCROLLS):
            await stopwatch.frame("scrolling", lambda: conversation.scroll_relative(y=-3, animate=False), lambda: True)
        await conversation.show_end()
        desk.fake.hold()
        desk.fake.enqueue("word " * NUM_TOKENS)
        await terminal.write("go on")
        await terminal.keys("enter")
        await terminal.until(lambda: terminal.texts[-2:-1] == ["go on"])
        reply = conversation.views[-1]
        desk.fake.let(NUM_STEPS_OF_PROMPT)
        await terminal.until(lambda: reply.answer)
        for _ in range(NUM_TOKENS):
            has_grown = partial(is_longer, reply, len(reply.answer))
            await stopwatch.frame(
                "streaming",
                lambda: desk.fake.let(1),
                has_grown,
            )
        stopwatch.print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=500, help="in the chat (default: 500)")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PAGED_CHAT_HOME"] = folder
        desk = ChatDesk(Path(folder) / "chats.db", FakeEngine())
        try:
            asyncio.run(measure(desk, arguments.messages))
        finally:
            desk.close()


if __name__ == "__main__":
    main()
