"""What the cases of faults that users of other systems met have in common."""

from paged_chat.engine import Engine, TokenDelta
from slot_runner import sequence_of

KERNELS = ("cpu", "reference")
PROMPT = [1, *((11 * i) % 310 + 3 for i in range(1100))]


def steps_until(engine: Engine, request_id: str, num_tokens: int) -> list[TokenDelta]:
    """Steps until the sequence, prompt included, holds so many tokens."""
    deltas: list[TokenDelta] = []
    while len(sequence_of(engine._open_core(), request_id).token_ids) < num_tokens:
        deltas += engine.step()
    return deltas
