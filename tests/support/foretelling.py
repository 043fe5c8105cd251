"""A drafter that knows what is going to be said, and is wrong as often as a test wants."""

from collections.abc import Callable, Mapping
from collections.abc import Sequence as ListOf
from random import Random

import torch

from paged_chat.engine.sampler import sample
from paged_chat.engine.sequence import Sequence, SequenceStatus
from paged_chat.engine.step_logits import StepLogits
from slot_runner import entry, random_logits

Foretell = Callable[[Sequence, int], ListOf[int]]
"""The next tokens of a sequence, up to so many."""


def from_logits(logits_of: Callable[[ListOf[bytes]], torch.Tensor] = random_logits) -> Foretell:
    """Draws them as the engine will, from the logits of the stand-in model."""

    def foretell(sequence: Sequence, length: int) -> ListOf[int]:
        ahead = sequence.fork(sequence.sample, SequenceStatus.RUNNING)
        history: list[bytes] = []
        for token_id in ahead.token_ids:
            history.append(entry(history, token_id))
        for _ in range(length):
            [token] = sample(StepLogits(logits_of(history)[None]), [ahead], [0])
            ahead.token_ids.append(token.token_id)
            history.append(entry(history, token.token_id))
        return ahead.token_ids[-length:]

    return foretell


def from_replies(replies: Mapping[tuple[int, ...], ListOf[int]]) -> Foretell:
    """Knows the replies by their prompts."""

    def foretell(sequence: Sequence, length: int) -> ListOf[int]:
        reply = replies[tuple(sequence.token_ids[: sequence.num_prompt_tokens])]
        return reply[sequence.num_generated_tokens :][:length]

    return foretell


class ForetellingDrafter:
    """Drafts what `foretell` says, the first tokens as they are and the rest changed."""

    def __init__(
        self,
        length: int | None = None,
        num_right: int | None = None,
        *,
        seed: int = 0,
        foretell: Foretell | None = None,
    ) -> None:
        """length, num_right: of every draft; None takes another number each time."""
        self.drafts: list[list[int]] = []
        self.rooms: list[list[int]] = []  # of the sequences of each step
        self.learnt: list[tuple[int, int]] = []  # rows and drafted tokens of each step that it was told of
        self._length = length
        self._num_right = num_right
        self._random = Random(seed)
        self._foretell = foretell or from_logits()

    def draft(self, rooms: Mapping[Sequence, int], max_tokens: int) -> dict[Sequence, list[int]]:
        drafts = {}
        self.rooms.append(list(rooms.values()))
        for sequence, room in rooms.items():
            length = min(self._choose(self._length, 6), room, max_tokens)
            if length > 0:
                num_right = self._choose(self._num_right, length)
                foretold = self._foretell(sequence, length)
                drafts[sequence] = [*foretold[:num_right], *(token_id ^ 1 for token_id in foretold[num_right:])]
                self.drafts.append(list(drafts[sequence]))
                max_tokens -= length
        return drafts

    def learn(self, num_rows: int, num_drafted: int, seconds: float) -> None:
        assert seconds > 0
        self.learnt.append((num_rows, num_drafted))

    def _choose(self, fixed: int | None, most: int) -> int:
        return self._random.randint(0, most) if fixed is None else fixed
