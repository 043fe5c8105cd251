"""One request from its submission until its last reply has ended."""

from dataclasses import dataclass, field

from .beam_group import BeamGroup
from .block_use import BlockCount
from .reply import Reply
from .sequence import Sequence


@dataclass(slots=True)
class RunningRequest:
    """Replies that are drawn, or the beams of a search, which has no replies before its end."""

    request_id: str
    num_samples: int
    submitted: float  # time.perf_counter()
    replies: list[Reply] = field(default_factory=list)  # by sample; those that haven't parted yet are missing
    num_finished: int = 0
    blocks: BlockCount | None = None  # of several replies
    beams: BeamGroup | None = None

    @property
    def sequences(self) -> list[Sequence]:
        """Those that run or wait."""
        if self.beams is not None:
            return self.beams.sequences
        return [reply.sequence for reply in self.replies if not reply.has_ended]

    def growing_reply(self, sample: int) -> Reply | None:
        """One reply that can end alone; None once it has ended, and before it has parted from the prompt."""
        if len(self.replies) < self.num_samples or self.replies[sample].has_ended:
            return None
        return self.replies[sample]
