"""One growing list of tokens and the blocks that hold its KV: a prompt and one of its replies."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from .cache.block import Block, Root
from .cache.prefix_probe import PrefixProbe
from .request import SamplingParams
from .speculation.token_guesser import TokenGuesser
from .token_history import TokenHistory


class SequenceStatus(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(slots=True, eq=False)
class Sequence:
    """Tokens [0, num_computed_tokens) have their KV in `block_table`; the rest are still to be computed.

    Always: while it waits, it holds no block and num_computed_tokens is 0;
            token_ids[num_prompt_tokens:] is the reply, whatever was preempted meanwhile; its first
            num_start_tokens were given with the prompt, the others drawn.
    """

    request_id: str
    params: SamplingParams
    root: Root
    token_ids: list[int]
    num_prompt_tokens: int
    max_len: int  # prompt and reply together
    num_start_tokens: int = 0
    sample: int = 0
    seed: int = 0
    num_forks: int = 0  # replies or beams that part from this sequence once its prompt is computed
    arrival: int = 0  # the number of its request
    status: SequenceStatus = SequenceStatus.WAITING
    block_table: list[Block] = field(default_factory=list)
    block_hashes: list[bytes] = field(default_factory=list)  # of the full blocks of token_ids, as far as needed
    num_published_blocks: int = 0
    is_hidden: bool = False  # a block couldn't be published, so none behind it will be while the table is held
    num_computed_tokens: int = 0
    num_cached_tokens: int | None = None  # prompt tokens reused at first admission; None before it
    prefix: PrefixProbe | None = None  # what it found at first admission, and why no more; None before it
    num_preemptions: int = 0
    num_steps_deferred: int = 0  # steps that it waited for a block which another sequence computes
    last_served: int = -1  # grows with every turn that any sequence gets
    is_suspect: bool = False  # a step with it has failed; until one has not, it is computed alone
    is_idle: bool = False  # nothing to compute: what comes next depends on other sequences
    history: TokenHistory = field(default_factory=TokenHistory)  # token_ids, for what looks at all of them
    guesser: TokenGuesser | None = None  # made when guesses are first wanted
    num_drafted_tokens: int = 0  # guessed ahead and verified
    num_accepted_tokens: int = 0  # of those, the ones that were right and saved a step

    @property
    def order(self) -> tuple[int, int]:
        """Who came first: requests by arrival, the replies of one by number."""
        return self.arrival, self.sample

    @property
    def num_remaining_tokens(self) -> int:
        """Tokens whose KV is still to be computed."""
        return len(self.token_ids) - self.num_computed_tokens

    @property
    def num_given_tokens(self) -> int:
        """What the request came with: the prompt, and what the reply begins with."""
        return self.num_prompt_tokens + self.num_start_tokens

    @property
    def num_generated_tokens(self) -> int:
        return len(self.token_ids) - self.num_given_tokens

    @property
    def output_token_ids(self) -> list[int]:
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def num_places(self) -> int:
        """Places in the running set: a prompt that will fork takes one for each reply from the start."""
        return 1 + self.num_forks

    def fork(self, sample: int, status: SequenceStatus) -> Sequence:
        """A reply that shares everything computed so far; its blocks are the manager's to count."""
        return Sequence(
            request_id=self.request_id,
            params=self.params,
            root=self.root,
            token_ids=list(self.token_ids),
            num_prompt_tokens=self.num_prompt_tokens,
            max_len=self.max_len,
            num_start_tokens=self.num_start_tokens,
            sample=sample,
            seed=self.seed - self.sample + sample,
            arrival=self.arrival,
            status=status,
            block_hashes=list(self.block_hashes),
            num_computed_tokens=self.num_computed_tokens,
            num_cached_tokens=self.num_cached_tokens,
            prefix=self.prefix,
            num_preemptions=self.num_preemptions,
            last_served=self.last_served,
        )
