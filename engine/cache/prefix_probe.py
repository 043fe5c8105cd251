"""What a prompt finds in the cache, and why it finds no more."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class MissKind(StrEnum):
    """What is known of the first token that a prompt doesn't find."""

    NEVER_SEEN = "never seen"  # nothing like it was ever there to be found
    EVICTED = "evicted"  # it lay here, and was given up for the space
    NOT_REMEMBERED = "not remembered"  # never seen, or evicted so long ago that the memory of evictions has lost it
    CACHE_OFF = "cache off"  # the engine keeps nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedCandidate:
    """Of the cached blocks that follow where whole blocks stop matching, the one with most leading tokens in common.

    num_common_tokens: these are reused, by copying the block.
    token_id: the first of its tokens that is another one than the prompt's; None where its tokens end before that.
    """

    block_id: int
    num_common_tokens: int
    token_id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixMiss:
    """Where a prompt stops finding itself in the cache, and what is known of that place.

    token_index, block_index: the first token that isn't found, and the block of the prompt in which it stands.
    token_id: that token.
    num_evicted_tokens: how many tokens from there on lay in the cache once and were evicted.
    candidate: what the cache holds in that place instead; None where it holds nothing there.
    is_root_empty: the cache holds nothing at all under the prompt's own root.
    num_other_roots: how many other roots (salts, adapters) it holds something under.
    num_tokens_elsewhere: most tokens that the prompt would find under any of these; None unless it was asked for, since
        whoever learns it learns what others have sent.
    """

    kind: MissKind
    token_index: int
    block_index: int
    token_id: int
    num_evicted_tokens: int = 0
    candidate: CachedCandidate | None = None
    is_root_empty: bool = False
    num_other_roots: int = 0
    num_tokens_elsewhere: int | None = None


@dataclass(frozen=True, slots=True)
class PrefixProbe:
    """What a request reuses: tokens in all, blocks shared whole, and the first token that it must compute.

    miss: why not more; None where all but the last token is found, which is always computed.
    """

    num_cached_tokens: int
    num_cached_blocks: int
    first_missing_token: int
    miss: PrefixMiss | None = None
