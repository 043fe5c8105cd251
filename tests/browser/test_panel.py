"""The cache beside the conversation, in a real browser. Blocks hold 16 tokens, and a token is a byte here."""

import re
from collections import Counter
from dataclasses import dataclass, field

import pytest
from playwright.sync_api import Locator, Page, ViewportSize, WebSocket, expect

from chat_page import DESK, PHONE, ChatPage
from paged_chat.app.cache_view import block_view

MAP = "pagedChat.panel.map"


class CachePanel:
    """The panel of a tab, as it is seen."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.element = page.get_by_role("complementary", name="Cache")
        self.toggle = page.get_by_role("button", name="Show or hide the cache")
        self.map = self.element.locator("canvas")
        self.note = self.element.locator(".block-note")
        self.saved = self.element.locator(".panel-saved")
        self.lines = self.element.locator(".panel-log li")

    def figure(self, word: str) -> Locator:
        return (
            self.element.locator(".panel-figures div").filter(has=self.page.get_by_text(word, exact=True)).locator("dd")
        )

    def expect_letters(self, letters: str) -> None:
        """The first blocks are in these states."""
        self.page.wait_for_function(f"letters => {MAP}.letters.join('').startsWith(letters)", arg=letters)

    def expect_figures(self, figures: dict[str, str | int]) -> None:
        for word, value in figures.items():
            expect(self.figure(word), word).to_have_text(str(value))

    def expect_log(self, totals: dict[str, int]) -> None:
        """What happened so far, to how many blocks."""
        counted: Counter[str] = Counter()
        for line in self.lines.all_inner_texts():
            [(word, count)] = re.findall(r"^\d\d:\d\d:\d\d (\w+) (\d+)$", line)
            counted[word] += int(count)
        assert counted == totals

    def point_at(self, block_id: int) -> None:
        x, y, pitch = self.page.evaluate(f"place => [...{MAP}.corner(place), {MAP}.pitch]", block_id - 1)
        self.map.hover(position={"x": x + pitch / 2, "y": y + pitch / 2})

    def expect_colour(self, block_id: int, colour: str, percent: int = 100) -> None:
        """What the cell is filled with, as it is drawn beside its letter: "#rrggbb", and how much of it."""
        rgb = [*bytes.fromhex(colour[1:])]
        self.page.wait_for_function(
            f"""([place, rgb, percent]) => {{
                const [x, y] = {MAP}.corner(place);
                const [...pixel] = {MAP}.painter.context.getImageData(x + 2, y + 2, 1, 1).data;
                // A canvas keeps fewer shades of a colour that is half transparent.
                return rgb.every((value, index) => Math.abs(value - pixel[index]) < 4)
                    && Math.round(pixel[3] / 2.55) === percent;
            }}""",
            arg=[block_id - 1, rgb, percent],
        )


@dataclass
class Lines:
    """The panels' lines to the server, and what came over them."""

    opened: list[WebSocket] = field(default_factory=list)
    frames: list[str | bytes] = field(default_factory=list)

    def watch(self, page: Page) -> None:
        page.on("websocket", self._note)

    @property
    def num_open(self) -> int:
        return sum(not line.is_closed() for line in self.opened)

    def _note(self, line: WebSocket) -> None:
        if line.url.endswith("/paged-chat/panel"):
            self.opened.append(line)
            line.on("framereceived", lambda frame: self.frames.append(frame))


@pytest.fixture
def panel(chat: ChatPage) -> CachePanel:
    panel = CachePanel(chat.page)
    expect(panel.map).to_be_visible()
    return panel


def strip_of(reply: Locator) -> list[tuple[str, str]]:
    """What became of how many blocks."""
    runs = reply.locator(".strip-run")
    return [
        (kind.removeprefix("strip-run is-"), style.removeprefix("--num-blocks: "))
        for kind, style in runs.evaluate_all("runs => runs.map(run => [run.className, run.getAttribute('style')])")
    ]


def test_after_each_turn_the_figures_the_strip_and_the_log_are_exact(chat, panel, engine):
    engine.enqueue("a" * 40)
    chat.ask("b" * 40)
    # A prompt of 57 tokens and a reply of 40; nothing was computed upon its end token. So 6 blocks and a token.
    assert len(engine.models[0].submitted[0][0]) == 57, "the beginning, user:bbb…</s>assistant:"
    expect(chat.replies.last.locator(".cost")).to_contain_text("0 reused · 57 computed · 41 tokens")
    assert strip_of(chat.replies.last) == [("computed", "6"), ("computed is-partial", "0.5")]
    expect(chat.replies.last.locator(".strip")).to_have_attribute("aria-label", "computed 7 blocks")
    panel.expect_letters("ccccccc·")
    panel.expect_figures({"hit rate": "0 %", "held": 0, "cached": 7, "free": 504, "freed": 7, "copied": 0})
    panel.expect_log({"published": 7, "freed": 7})

    engine.enqueue("a" * 20)
    chat.ask("c" * 10)
    # 27 tokens follow what was computed. The one token in the 7th block is found too, and its block copied.
    expect(chat.replies.last.locator(".cost")).to_contain_text("97 reused · 27 computed · 21 tokens")
    assert strip_of(chat.replies.last) == [("reused", "6"), ("copied", "1"), ("computed", "2")]
    expect(chat.replies.last.locator(".strip")).to_have_attribute("aria-label", "reused 6 blocks, copied 1, computed 2")
    # 97 of 57 and 124 tokens. The old 7th block holds nothing more that the new one doesn't.
    panel.expect_figures({"hit rate": "54 %", "held": 0, "cached": 9, "free": 502, "freed": 16, "copied": 1})
    panel.expect_figures({"shared": 0, "evicted": 0})
    panel.expect_log({"published": 10, "freed": 16, "reused": 6, "copied": 1})
    expect(panel.saved).to_have_text(re.compile(r"^saved [\d.]+ m?s$"))


def test_the_strip_stands_with_the_prompt_and_grows_with_the_reply(chat, panel, engine):
    engine.enqueue("a" * 60)
    engine.hold()
    chat.send("b" * 40)
    reply = chat.replies.last
    # 57 tokens of prompt, nothing of it found.
    expect(reply.locator(".cost")).to_contain_text("0 reused · 57 computed · 0 tokens")
    assert strip_of(reply) == [("computed", "3"), ("computed is-partial", "0.5")]
    engine.let(21)
    expect(reply.locator(".cost")).to_contain_text("57 computed · 21 tokens")
    assert strip_of(reply) == [("computed", "4"), ("computed is-partial", "0.5")]
    chat.page.keyboard.press("Escape")
    chat.wait_for_end()
    engine.go()
    engine.enqueue("b" * 20)
    chat.press(reply, "Continue")
    chat.wait_for_end()
    # What was written goes on in the same blocks: the prompt's 57 tokens, and 21 and 21 with the end token.
    expect(reply.locator(".cost")).to_contain_text("0 reused · 57 computed · 42 tokens")
    assert strip_of(reply) == [("computed", "6"), ("computed is-partial", "0.5")]


def test_what_replies_share_is_shown_while_they_are_written(chat, panel, engine):
    chat.page.get_by_label("Replies", exact=True).select_option("2")
    engine.enqueue("a" * 20, "b" * 20)
    engine.hold()
    chat.send("c" * 40)
    engine.let(6)
    # Three blocks of the prompt in common, then each has a tail of its own.
    panel.expect_letters("ssshh···")
    panel.expect_figures({"held": 5, "shared": 3})
    panel.point_at(1)
    expect(panel.note.locator("strong")).to_have_text("shared by 2")
    expect(panel.note.locator(".note-state")).to_have_text("shared by 2: r1, r1 reply 2")
    expect(panel.note.locator(".note-text")).to_have_text("user:" + "c" * 10)
    expect(panel.note.locator(".note-figures")).to_contain_text("block 1, ref_count 2, hash ")
    expect(panel.note.locator(".note-figures")).to_contain_text("tokens 0 to 15")
    engine.go()
    expect(panel.note.locator("strong")).to_have_text("cached")
    chat.field.hover()
    expect(panel.note).to_contain_text("Point at a block")


def test_what_is_given_up_for_the_space_is_counted(open_tab, serve):
    served = serve(num_blocks=13)  # one of them is never used
    chat = open_tab(url=served.url)
    panel = CachePanel(chat.page)
    for letter in "ab":
        served.engine.enqueue(letter * 40)
        chat.ask(letter.upper() * 80)
        chat.page.get_by_role("button", name="+ New chat").click()
    # 97 tokens of prompt and 40 of reply each: 9 blocks, of which 12 hold no two.
    panel.expect_figures({"evicted": 6, "cached": 12, "free": 0, "freed": 18, "copied": 1})
    panel.expect_letters("cccccccccccc")
    assert panel.lines.filter(has_text=re.compile("evicted")).count() > 0


def test_the_map_is_walked_with_the_keyboard(chat, panel, engine):
    engine.enqueue("a" * 40)
    chat.ask("b" * 40)
    keyboard = chat.page.keyboard
    panel.map.press("Home")
    expect(panel.note.locator(".note-text")).to_have_text("user:" + "b" * 10)
    keyboard.press("ArrowRight")
    expect(panel.note.locator(".note-figures")).to_contain_text("block 2, ")
    keyboard.press("ArrowDown")
    expect(panel.note.locator(".note-state")).to_have_text("free")
    keyboard.press("ArrowUp")
    keyboard.press("ArrowLeft")
    keyboard.press("ArrowLeft")
    expect(panel.note.locator(".note-figures")).to_contain_text("block 1, ")
    keyboard.press("Escape")
    expect(panel.note).to_contain_text("Point at a block")


def test_a_hidden_panel_is_told_nothing(chat, panel, engine):
    lines = Lines()
    lines.watch(chat.page)
    chat.page.reload()
    expect(panel.map).to_be_visible()
    assert lines.num_open == 1
    panel.toggle.click()
    expect(panel.element).to_be_hidden()
    chat.page.wait_for_function("pagedChat.panel.line.socket === null")
    num_frames = len(lines.frames)
    chat.ask("Are you watched?")
    assert (lines.num_open, len(lines.frames)) == (0, num_frames)
    panel.toggle.click()
    panel.expect_letters("ccc")
    assert (lines.num_open, len(lines.opened)) == (1, 2)

    # The same in a tab that is in the background, as the browser tells it.
    in_background = "Object.defineProperty(document, 'visibilityState', {value: '%s', configurable: true});"
    tell = "document.dispatchEvent(new Event('visibilitychange'))"
    chat.page.evaluate(in_background % "hidden" + tell)
    chat.page.wait_for_function("pagedChat.panel.line.socket === null")
    num_frames = len(lines.frames)
    chat.ask("And now?")
    assert (lines.num_open, len(lines.frames)) == (0, num_frames)
    chat.page.evaluate(in_background % "visible" + tell)
    expect(panel.figure("hit rate")).not_to_have_text("0 %")
    assert lines.num_open == 1


def test_while_nothing_happens_nothing_is_sent(chat, panel):
    lines = Lines()
    lines.watch(chat.page)
    chat.page.reload()
    expect(panel.map).to_be_visible()
    chat.page.wait_for_timeout(400)
    num_frames = len(lines.frames)
    chat.page.wait_for_timeout(1500)
    assert len(lines.frames) == num_frames


def test_a_copied_and_a_freed_block_are_seen_and_the_freed_one_fades(chat, panel, engine, monkeypatch):
    monkeypatch.setattr(block_view, "RECENT_S", 3600.0)  # so that no look comes too late for it
    chat.page.evaluate("performance.now = () => window.nowMs; window.nowMs = 10000")
    engine.enqueue("a" * 40)
    chat.ask("b" * 40)
    panel.expect_letters("fffffff·")
    panel.expect_colour(1, "#d55e00")
    chat.page.evaluate("window.nowMs = 11000")
    panel.expect_colour(1, "#d55e00", percent=50)
    chat.page.evaluate("window.nowMs = 12000")
    panel.expect_colour(1, "#d55e00", percent=20)
    # The next prompt holds them again, and writes behind the one token in the 7th: that is copied into the 8th.
    engine.enqueue("a" * 20)
    engine.hold()
    chat.send("c" * 10)
    engine.let(1)
    panel.expect_letters("hhhhhhfyh·")
    panel.expect_colour(8, "#cc79a7")
    monkeypatch.setattr(block_view, "RECENT_S", 0.0)
    panel.expect_letters("hhhhhh·hh·")
    panel.expect_colour(8, "#56b4e9")
    engine.go()
    panel.expect_letters("cccccc·ccc")
    panel.expect_colour(1, "#9aa7b4")


def test_every_tab_sees_the_same_pool(open_tab, engine):
    one, two = open_tab(), open_tab()
    panels = [CachePanel(one.page), CachePanel(two.page)]
    engine.enqueue("a" * 40)
    one.ask("b" * 40)
    for panel in panels:
        panel.expect_letters("ccccccc·")
        expect(panel.figure("freed")).to_have_text("7")


def test_another_model_has_another_pool(chat, panel, engine, served):
    chat.ask("Hello")
    panel.expect_letters("c")
    engine.num_blocks = 40
    served.service.switch_model("another")
    chat.page.wait_for_function(f"{MAP}.letters.join('') === '·'.repeat(39)")
    assert chat.page.evaluate(f"{MAP}.pitch") == 22, "a small pool has letters"


def test_why_a_prompt_found_no_more(chat, panel, served):
    why = panel.element.locator(".panel-why")
    words, figures = why.locator(".why-words"), why.locator(".why-figures")
    chat.ask("Hello")
    why.get_by_text("why not more?").click()
    # The very first prompt: nothing went wrong.
    expect(words).to_have_text(
        "0 of 22 tokens were reused. From token 1 on: the cache was empty, for this is the first that the model reads; "
        "nothing went wrong"
    )
    expect(figures).to_have_text("token 0, block 0: 'user:He'")
    expect(why).not_to_have_class(re.compile("is-fault"))
    served.service.update_chat(chat.chat_id, system_prompt="Be short.")
    chat.ask("Again")
    # The beginning of all prompts is found in the first block; then it says "system" and no more "user".
    edited = "1 of 68 tokens was reused. From token 2 on: the system prompt was edited"
    expect(words).to_have_text(edited)
    expect(figures).to_have_text("token 1, block 0: 'system:B', where the chat had 'u'; 1 token of block 1 was copied")
    expect(why).to_have_class(re.compile("is-fault"))
    expect(why.locator("strong")).to_have_text("Newest reply")
    # An earlier turn can be asked too, and all of them after the page was loaded again.
    chat.replies.first.click()
    expect(words).to_have_text(re.compile("the cache was empty"))
    expect(why.locator("strong")).to_have_text("This reply")
    chat.page.reload()
    expect(chat.replies).to_have_count(2)
    why.get_by_text("why not more?").click()
    expect(words).to_have_text(edited)
    chat.replies.first.click()
    expect(words).to_have_text(re.compile("the cache was empty"))


def test_on_a_phone_the_cache_is_behind_its_button(open_tab, engine):
    chat = open_tab(viewport=PHONE, has_touch=True, is_mobile=True)
    panel = CachePanel(chat.page)
    expect(panel.element).to_be_hidden()
    engine.enqueue("a" * 40)
    chat.ask("b" * 40)
    expect(chat.replies.last.locator(".strip")).to_be_visible()
    panel.toggle.tap()
    expect(panel.map).to_be_visible()
    assert chat.overflow() == 0
    panel.map.tap(position={"x": 10, "y": 10})
    expect(panel.note.locator(".note-text")).to_have_text("user:" + "b" * 10)
    panel.element.get_by_role("button", name="Hide the cache").tap()
    expect(panel.element).to_be_hidden()


def test_a_page_that_is_made_narrow_is_not_covered_by_the_cache(chat, panel):
    expect(panel.element).to_be_visible()
    chat.page.set_viewport_size(PHONE)
    expect(panel.element).to_be_hidden()
    chat.page.set_viewport_size(DESK)
    expect(panel.element).to_be_visible()


def test_the_map_comes_to_rest_however_many_blocks_are_in_use(chat, panel, engine, served):
    """The panel's scroll bar takes width from a large map; a smaller one took the bar away, which made room for it."""
    engine.num_blocks = 2501
    served.service.switch_model("another")
    chat.page.wait_for_function(f"{MAP}.letters.length === 2500")
    restless = {}
    for height in (570, 580, 590):  # where some maps need a scroll bar beside what stands below them
        chat.page.set_viewport_size(ViewportSize(width=1400, height=height))
        restless[height] = chat.page.evaluate(
            f"""async () => {{
                const map = {MAP}, restless = [];
                const scripts = performance.getEntriesByType("resource").map(({{ name }}) => name);
                const {{ drawFrame }} = await import(scripts.find((name) => name.endsWith("/frames.js")));
                const frames = async (count) => {{ while (count--) await new Promise(drawFrame); }};
                for (let used = 20; used < 1250; used += 100) {{
                    map.update([[1, used, "c", 0]]);
                    await frames(2);
                    const {{ key }} = map;
                    await frames(1);
                    if (map.key !== key) restless.push(used);
                }}
                return restless;
            }}"""
        )
    assert not any(restless.values()), restless


def test_ten_thousand_blocks_are_drawn_in_a_frame(chat, panel, engine, served):
    engine.num_blocks = 10_001
    served.service.switch_model("another")
    chat.page.wait_for_function(f"{MAP}.letters.length === 10000")
    whole_ms, change_ms = chat.page.evaluate(
        f"""() => {{
            const timed = (work) => {{ const began = performance.now(); work(); return performance.now() - began; }};
            const runs = Array.from({{length: 10000}}, (_, place) => [place + 1, 1, "chsyf·"[place % 6], place % 5]);
            return [timed(() => {MAP}.update(runs)), timed(() => {MAP}.update([[417, 40, "s", 3]]))];
        }}"""
    )
    print(f"10,000 blocks: all drawn in {whole_ms:.1f} ms, 40 that change in {change_ms:.1f} ms")
    assert chat.page.evaluate(f"{MAP}.numShown") == 10_000
    panel.expect_colour(7, "#7c8a98")  # cached, and too small for a letter: darker than the legend has it
    chat.page.get_by_role("button", name="Light or dark").click()
    panel.expect_colour(7, "#84929d")  # lighter
    box = panel.map.bounding_box()
    assert box["width"] <= 340
    expect(panel.lines.or_(panel.element.locator(".panel-log"))).to_be_in_viewport()
