"""What of a chat is sent when it is longer than the model's window.

The system prompt stays, and so does the last turn: a question and what has been replied to it. Old turns are left out
whole, oldest first.

If just enough turns were left out each time, every prompt of a long chat would begin with another turn than the one
before it, and nothing that the cache holds would serve. So they leave in big steps: the kept part of a chat can begin
only at certain turns, its *cuts*, each half a window's turns after the one before. Between two steps the prompt only
grows at its end.

Where the cuts are depends on the sizes of the turns alone, never on when the chat came to need them. So a chat is cut
at the same turns after a restart, on each of its branches, and whatever length of reply is asked for.
"""

from collections.abc import Iterator, Sequence

# Room for a reply: no more of the window than this is kept free for it, however long it may become.
MAX_SHARE_OF_REPLY = 4  # a quarter
MIN_REPLY_TOKENS = 16


def cuts(turn_sizes: Sequence[int], step: int) -> Iterator[int]:
    """The turns with which the kept part of a chat may begin, first to last; the chat's last turn ends the list.

    turn_sizes: in tokens. step: tokens that are left out at once, at least.
    """
    yield 0
    num_tokens, newest = 0, 0
    for turn, size in enumerate(turn_sizes[:-1], start=1):
        num_tokens += size
        if num_tokens >= step:
            yield (newest := turn)
            num_tokens = 0
    if newest < len(turn_sizes) - 1:
        yield len(turn_sizes) - 1


def reply_room(max_tokens: int | None, num_available: int) -> int:
    """Tokens that are kept free for the reply, of those that the system prompt leaves.

    max_tokens: the longest reply that is wanted; None is as long as it gets.
    """
    most = max(num_available // MAX_SHARE_OF_REPLY, 1)
    return most if max_tokens is None else min(max_tokens, most)
