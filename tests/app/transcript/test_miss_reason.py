"""Why a prompt found no more: which cause holds, and how it is told."""

import pytest

from paged_chat.app.transcript.divergence import Divergence
from paged_chat.app.transcript.miss_reason import History, MissReason, why_missed
from paged_chat.engine import CachedCandidate, MissKind, PrefixMiss, PrefixProbe

TEXT = "Be kind. Tell me about Lisbon and its hills."
PROMPT = [ord(character) for character in TEXT]


def decode(token_ids: object) -> str:
    return "".join(map(chr, token_ids))  # type: ignore[call-overload]


def probe(
    index: int,
    kind: MissKind = MissKind.NEVER_SEEN,
    *,
    num_evicted_tokens: int = 0,
    candidate: CachedCandidate | None = None,
    is_root_empty: bool = False,
    num_other_roots: int = 0,
) -> PrefixProbe:
    miss = PrefixMiss(
        kind=kind,
        token_index=index,
        block_index=index // 16,
        token_id=PROMPT[index],
        num_evicted_tokens=num_evicted_tokens,
        candidate=candidate,
        is_root_empty=is_root_empty,
        num_other_roots=num_other_roots,
    )
    return PrefixProbe(index, index // 16, index, miss)


def reason(found: PrefixProbe, history: History | None = None) -> MissReason:
    return why_missed(found, PROMPT, decode, history or History())


@pytest.mark.parametrize(
    ("found", "history", "cause", "is_fault"),
    [
        (PrefixProbe(43, 2, 43), History(num_read_tokens=44), "all reused", False),
        (probe(0, is_root_empty=True), History(), "first message", False),
        (probe(0, is_root_empty=True, num_other_roots=2), History(), "other salt", False),
        (probe(0, num_other_roots=2), History(), "new text", False),
        (probe(24), History(), "new text", False),
        (probe(24), History(num_read_tokens=24), "new text", False),
        (probe(24), History(num_read_tokens=20, is_older=True, was_read_by="big"), "new text", False),
        (probe(24), History(num_read_tokens=25), "not kept", True),
        (probe(0, MissKind.EVICTED, num_evicted_tokens=30), History(num_read_tokens=30), "evicted", True),
        (probe(24, MissKind.EVICTED, num_evicted_tokens=3), History(), "evicted", True),
        (probe(0, is_root_empty=True), History(is_older=True), "loaded since", True),
        (probe(0, is_root_empty=True), History(is_older=True, was_read_by="big"), "other model", True),
        (probe(0, MissKind.CACHE_OFF), History(num_read_tokens=30), "cache off", True),
        (
            probe(3),
            History(num_read_tokens=3, divergence=Divergence(3, 114, 107, "system prompt edited")),
            "system prompt edited",
            True,
        ),
        # The edited prompt was in the cache too, from before; what follows wasn't.
        (
            probe(20),
            History(num_read_tokens=3, divergence=Divergence(3, 114, 107, "thinking dropped")),
            "thinking dropped",
            True,
        ),
        # What had been read up to the change was evicted: that is why it isn't found.
        (
            probe(2, MissKind.EVICTED, num_evicted_tokens=1),
            History(num_read_tokens=3, divergence=Divergence(3, 114, 107, "system prompt edited")),
            "evicted",
            True,
        ),
    ],
)
def test_the_first_cause_that_holds(found: PrefixProbe, history: History, cause: str, is_fault: bool) -> None:
    told = reason(found, history)
    assert (told.cause, told.is_fault) == (cause, is_fault)
    assert (told.token_index, told.num_cached_tokens) == (found.first_missing_token, found.num_cached_tokens)


def test_an_edit_names_the_token_on_both_sides() -> None:
    history = History(num_read_tokens=3, divergence=Divergence(3, ord("r"), ord("k"), "system prompt edited"))
    candidate = CachedCandidate(block_id=7, num_common_tokens=3, token_id=ord("r"))
    told = reason(probe(3, candidate=candidate), history)
    assert (told.before, told.text, told.cached_text) == ("Be ", "kind. Te", "r")
    assert told.is_from_this_chat
    assert str(told) == "3 of 44 tokens were reused. From token 4 on: the system prompt was edited"
    assert told.figures_words == (
        "token 3, block 0: 'kind. Te' after 'Be ', where the chat had 'r'; 3 tokens of block 7 were copied"
    )


def test_a_prompt_that_parts_from_another_chats_names_the_block() -> None:
    candidate = CachedCandidate(block_id=7, num_common_tokens=8, token_id=ord("P"))
    told = reason(probe(24, candidate=candidate))
    assert str(told) == "24 of 44 tokens were reused. From token 25 on: the prompt is new"
    assert told.figures_words == (
        "token 24, block 1: 'isbon an' after ' about L', where block 7 has 'P'; 8 tokens of block 7 were copied"
    )
    behind = reason(probe(32, candidate=CachedCandidate(block_id=9, num_common_tokens=0, token_id=None)))
    assert behind.figures_words == "token 32, block 2: 'd its hi' after 'isbon an', behind the end of block 9"


def test_eviction_tells_how_much_was_there() -> None:
    told = reason(probe(16, MissKind.EVICTED, num_evicted_tokens=20), History(num_read_tokens=40))
    assert told.figures_words.endswith("; 20 tokens were evicted")
    assert str(told) == (
        "16 of 44 tokens were reused. From token 17 on: this was in the cache, and was given up when others needed "
        "the space; a larger pool keeps more"
    )


def test_another_model_is_named() -> None:
    told = reason(probe(0, is_root_empty=True), History(was_read_by="qwen3-0.6b"))
    assert str(told).endswith(
        "From token 1 on: qwen3-0.6b has read this chat before, and one model's cache is of no use to another"
    )


def test_nothing_missed_is_one_sentence() -> None:
    told = reason(PrefixProbe(43, 2, 43))
    assert str(told) == "Everything was in the cache but the last token, which is always computed"
    assert told.figures_words == "token 43, block 2"


def test_a_reason_comes_back_from_the_store_without_what_other_chats_say() -> None:
    candidate = CachedCandidate(block_id=7, num_common_tokens=8, token_id=ord("P"))
    told = reason(probe(24, candidate=candidate))
    kept = MissReason.kept(told.to_keep())
    assert told.cached_text == "P"
    assert (kept.cached_text, kept.text, kept.cause) == (None, told.text, "new text")
    edited = reason(probe(3), History(num_read_tokens=3, divergence=Divergence(3, 114, 107, "text trimmed")))
    assert MissReason.kept({**edited.to_keep(), "of_a_newer_version": 1}) == edited
