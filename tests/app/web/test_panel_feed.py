"""What a tab's panel is told: the whole pool once, then runs of blocks that look different."""

import re
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from paged_chat.app.cache_view.block_view import LOOKS, BlockState, LogLine, PoolView
from paged_chat.app.web.page_assets import ASSETS
from paged_chat.app.web.panel_feed import BlockRun, PanelFeed, all_runs, changed_runs

STATES = {state.look.letter: state for state in BlockState}


def picture(letters: str, hit_rate: float = 0.0) -> PoolView:
    """A pool whose blocks are in these states; a digit is a block that so many share."""
    counts = [int(letter) if letter.isdigit() else int(letter in "hy") for letter in letters]
    states = tuple(STATES["s" if letter.isdigit() else letter] for letter in letters)
    return PoolView(
        states=states,
        ref_counts=tuple(counts),
        num_free=states.count(BlockState.FREE),
        num_cached=states.count(BlockState.CACHED),
        num_held=sum(count > 0 for count in counts),
        num_shared=sum(count > 1 for count in counts),
        hit_rate=hit_rate,
        copies=0,
        frees=0,
        evictions=0,
        num_blocks_alone=sum(counts),
        saved_s=1.84,
        saved_bytes=14_000_000,
    )


def line(number: int) -> LogLine:
    return LogLine(100.0 + number, "reused", number, f"r{number}")


def test_at_first_a_tab_is_told_the_whole_pool():
    news = PanelFeed().news(picture("hh32··c", 0.93), [line(13)], 1)
    assert news["num_blocks"] == 7
    assert news["runs"] == [[1, 2, "h", 1], [3, 1, "s", 3], [4, 1, "s", 2], [5, 2, "·", 0], [7, 1, "c", 0]]
    assert news["figures"] == {
        "hit_rate": 0.93,
        "held": 4,
        "shared": 2,
        "cached": 1,
        "free": 2,
        "freed": 0,
        "copies": 0,
        "evictions": 0,
        "saved": "saved 1.8 s and 14 MB · 4 blocks instead of 7",
    }
    assert news["log"] == [[113.0, "reused", 13, "r13"]]
    assert [entry["word"] for entry in news["legend"]] == ["free", "cached", "held", "shared", "copied", "freed"]


def test_then_it_is_told_what_has_changed():
    feed = PanelFeed()
    feed.news(picture("hh2···"), [], 0)
    assert feed.news(picture("hh2···"), [], 0) is None
    assert feed.news(picture("hh3·hh"), [], 0) == {
        "kind": "pool",
        "runs": [[3, 1, "s", 3], [5, 2, "h", 1]],
        "log": [],
        "figures": {
            **feed.news(picture("·" * 7), [], 0)["figures"],
            "held": 5,
            "shared": 1,
            "cached": 0,
            "free": 1,
            "saved": "saved 1.8 s and 14 MB · 5 blocks instead of 7",
        },
    }


def test_each_line_of_the_log_is_told_once_and_a_late_tab_gets_the_newest_hundred():
    lines = [line(number) for number in range(150)]
    feed, view = PanelFeed(), picture("··")
    assert [number for _, _, number, _ in feed.news(view, lines, 400)["log"]] == list(range(50, 150))
    assert feed.news(view, lines, 400) is None
    lines.append(line(150))
    assert feed.news(view, lines, 401)["log"] == [[250.0, "reused", 150, "r150"]]


def test_another_model_is_another_pool_and_without_one_there_is_none():
    feed = PanelFeed()
    assert feed.news(None, [], 0) == {"kind": "no pool"}
    assert feed.news(None, [], 0) is None
    assert feed.news(picture("··"), [], 0)["num_blocks"] == 2
    assert feed.news(None, [], 0) == {"kind": "no pool"}
    assert feed.news(picture("··"), [], 0)["num_blocks"] == 2
    assert feed.news(picture("···"), [], 0)["num_blocks"] == 3


def test_of_ten_thousand_blocks_one_that_changes_is_one_run():
    before = picture("h" * 10_000)
    after = replace(before, ref_counts=(*before.ref_counts[:417], 2, *before.ref_counts[418:]))
    assert list(changed_runs(before, after)) == [BlockRun(418, 1, "h", 2)]
    assert list(all_runs(before)) == [BlockRun(1, 10_000, "h", 1)]


# Longer than what is compared at once.
_PICTURES = st.lists(st.text("·chyf23", min_size=300, max_size=300), min_size=1, max_size=5)


@given(_PICTURES)
def test_whoever_applies_the_news_has_the_pool(pools):
    feed = PanelFeed()
    letters, ref_counts = [""] * 300, [0] * 300
    for pool in pools:
        view = picture(pool)
        news = feed.news(view, [], 0) or {"runs": []}
        for first_id, num_blocks, letter, ref_count in news["runs"]:
            for place in range(first_id - 1, first_id - 1 + num_blocks):
                letters[place], ref_counts[place] = letter, ref_count
        assert "".join(letters) == view.letters
        assert tuple(ref_counts) == view.ref_counts


def test_the_style_sheets_have_the_colours_of_the_terminal():
    sheet = (ASSETS / "page.css").read_text(encoding="utf-8").upper()
    light, dark = (dict(re.findall(r"--BLOCK-(\w+): (#\w+)", part)) for part in sheet.split(".DARK {", 1))
    coloured = {state: look for state, look in LOOKS.items() if look.light is not None}
    assert {state.upper(): look.light for state, look in coloured.items()} == light
    assert {state.upper(): look.dark for state, look in coloured.items()} == dark
