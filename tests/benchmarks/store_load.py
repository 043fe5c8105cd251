"""How long a store of many chats takes to list, open, search and save: 1,000 chats of 200 messages, made once.

    python tests/benchmarks/store_load.py [--chats 1000] [--messages 200] [--folder FOLDER]

Each figure is the median of several calls, each on another chat or word where there is a choice. With --folder the
database is kept and found again.
"""

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from pathlib import Path

from paged_chat.app.chats import NewReply, ReplyCost
from paged_chat.app.imported_chat import ImportedChat, ImportedMessage
from paged_chat.app.store.store import Store
from paged_chat.engine.request import SamplingParams

NUM_CALLS = 15
WORDS_A_MESSAGE = 60
START = datetime(2026, 1, 1, tzinfo=UTC)
COST = ReplyCost(
    num_cached_tokens=900, num_computed_tokens=40, num_generated_tokens=80, ttft_ms=60.0, tokens_per_s=90.0
)
SYLLABLES = [consonant + vowel for consonant in "bdfghklmnprstvz" for vowel in "aeiou"]
IDEOGRAPHS = [chr(0x4E00 + number) for number in range(3000)]
# Each stands in one message of 10,000; the short one has letters that no other word has next to each other.
RARE_WORD, RARE_SYLLABLE = "zebrafish", "qx"


class Texts:
    """Messages of made-up words that are as unequally common as a language's; one in 50 in Chinese characters."""

    def __init__(self) -> None:
        self._random = random.Random(1)
        self.words = ["".join(self._random.choices(SYLLABLES, k=self._random.randint(1, 4))) for _ in range(20_000)]
        self._weights = list(accumulate(1 / rank for rank in range(1, len(self.words) + 1)))

    def message(self, number: int) -> str:
        if number % 50 == 7:
            return "".join(self._random.choices(IDEOGRAPHS, k=WORDS_A_MESSAGE))
        words = self._random.choices(self.words, cum_weights=self._weights, k=WORDS_A_MESSAGE)
        if number % 10_000 == 4_321:
            words += [RARE_WORD, RARE_SYLLABLE]
        return " ".join(words)


def make_chats(texts: Texts, first: int, num_chats: int, num_messages: int) -> Iterator[ImportedChat]:
    for chat in range(first, first + num_chats):
        messages = tuple(
            ImportedMessage(
                parent=place - 1 if place else None,
                role="assistant" if place % 2 else "user",
                text=texts.message(chat * num_messages + place),
                token_ids=tuple(range(80)) if place % 2 else None,
                model="smollm2-135m" if place % 2 else None,
                sampling=SamplingParams(seed=place) if place % 2 else None,
                cost=COST if place % 2 else None,
                finish_reason="stop" if place % 2 else None,
                created_at=START + timedelta(minutes=chat, seconds=place),
            )
            for place in range(num_messages)
        )
        yield ImportedChat(
            title=texts.message(0)[:50],
            messages=messages,
            active_leaf=num_messages - 1,
            created_at=START + timedelta(minutes=chat),
            updated_at=START + timedelta(minutes=chat + 1),
        )


def median_ms(call: Callable[[int], object]) -> float:
    times = []
    for number in range(NUM_CALLS):
        start = time.perf_counter()
        call(number)
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1000


def show(name: str, ms: float, found: int | None = None) -> None:
    print(f"{name:<44} {ms:>9.2f} ms" + ("" if found is None else f"   {found} hits"))


def measure(store: Store, texts: Texts) -> None:
    chats = store.chats()
    show(f"list of {len(chats):,} chats", median_ms(lambda number: store.chats()))
    show("its first 50", median_ms(lambda number: store.chats(limit=50)))
    show(
        f"open a chat of {len(store.tree(chats[0].id))} messages",
        median_ms(lambda number: store.tree(chats[-number].id).path(chats[-number].active_leaf_id)),
    )
    show("a chat's version", median_ms(lambda number: store.version(chats[number].id)))
    common, usual = texts.words[3], texts.words[200]
    for name, query in (
        ("a word in most messages", common),
        ("a usual word", usual),
        ("two usual words", f"{usual} {texts.words[300]}"),
        ("a rare word", RARE_WORD),
        ("a word that isn't there", "zzzzzz"),
        ("a common letter", "a"),
        ("a rare pair of letters", RARE_SYLLABLE),
        ("a pair that isn't there", "xq"),
        ("two Chinese characters", "".join(IDEOGRAPHS[10:12])),
        ("one Chinese character", IDEOGRAPHS[10]),
        ("a usual word and a rare pair of letters", f"{usual} {RARE_SYLLABLE}"),
    ):
        show(f"search: {name}", median_ms(lambda number, query=query: store.search(query)), len(store.search(query)))  # type: ignore[misc]

    chat = store.create_chat()
    reply = NewReply(model=None, sampling=SamplingParams(seed=1))
    turns = iter([store.add_turn(chat.id, None, "Hello?", [reply]) for _ in range(NUM_CALLS)])
    show("save a turn", median_ms(lambda number: store.add_turn(chat.id, None, "Hello?", [reply])))
    draft = store.add_turn(chat.id, None, "Hello?", [reply]).replies[0].id
    text = texts.message(0) * 5
    show("save a draft of 400 tokens", median_ms(lambda number: store.save_draft(draft, text, range(400))))
    show(
        "finish a reply of 400 tokens",
        median_ms(
            lambda number: store.finish_reply(
                next(turns).replies[0].id,
                text=text,
                token_ids=range(400),
                status="done",
                finish_reason="stop",
                cost=COST,
            )
        ),
    )
    store.delete_chat(chat.id)  # a database that is kept stays as it was made


def run(folder: Path, num_chats: int, num_messages: int) -> None:
    texts = Texts()
    path = folder / "chats.db"
    if not path.exists():
        start = time.perf_counter()
        with Store(path) as store:
            for first in range(0, num_chats, 20):
                store.import_chats(make_chats(texts, first, min(20, num_chats - first), num_messages))
        print(f"made {num_chats:,} chats of {num_messages} messages in {time.perf_counter() - start:.0f} s")
    show("open and close the store", median_ms(lambda _: Store(path).close()))
    with Store(path) as store:
        print(f"{store.stats().num_messages:,} messages, {store.stats().num_bytes / 1e6:,.0f} MB on disk")
        measure(store, texts)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chats", type=int, default=1000)
    parser.add_argument("--messages", type=int, default=200)
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args()
    if options.folder is not None:
        run(options.folder, options.chats, options.messages)
    else:
        with tempfile.TemporaryDirectory() as name:
            run(Path(name), options.chats, options.messages)
