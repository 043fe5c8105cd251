"""Figures about the pool and the engine at one moment, and what they let expect."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolSnapshot:
    """num_free + num_cached + num_referenced == num_blocks - 1, for block 0 is the null block and counts as none.

    hits, misses: prompt tokens reused and computed, each request counted once, at its admission.
    recomputed: tokens computed again after preemption; neither hit nor miss.
    prefill_tokens, prefill_s: what the steps computed that were mostly prompts, and the seconds they took.
    drafted_tokens, accepted_tokens: guessed ahead and verified, and those of them that were right and saved a step.
    """

    num_blocks: int
    block_size: int
    block_bytes: int
    num_free: int  # hold nothing
    num_cached: int  # nobody holds them now, a hit revives them
    num_referenced: int  # held by at least one sequence
    num_shared: int  # held by two or more
    ref_counts: tuple[int, ...]  # by block id
    token_counts: tuple[int, ...]  # by block id: how many tokens can be found there; 0 while a block is unpublished
    hits: int
    misses: int
    recomputed: int
    evictions: int
    copies: int  # blocks copied because two continuations parted
    preemptions: int
    num_running: int
    num_waiting: int
    num_events: int  # recorded since the start
    prefill_tokens: int = 0
    prefill_s: float = 0.0
    frees: int = 0  # times that a block's last holder let it go
    drafted_tokens: int = 0
    accepted_tokens: int = 0
    block_reads_saved: int = 0  # of a block by a decoding sequence, because another one had it read in the same step

    @property
    def hit_rate(self) -> float:
        """Share of prompt tokens that were reused, 0 before the first prompt."""
        return self.hits / (self.hits + self.misses) if self.hits + self.misses else 0.0


@dataclass(frozen=True, slots=True)
class TimeEstimate:
    """Expected seconds, and by how much such expectations are usually wrong."""

    seconds: float
    error_s: float
