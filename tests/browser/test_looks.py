"""How the page looks, where that can be said exactly: contrast, what covers what, what is cut, what can be hit."""

import re

import pytest
from playwright.sync_api import expect

from chat_page import PHONE

TABLET = {"width": 820, "height": 1180}
FINGER = {"viewport": PHONE, "has_touch": True, "is_mobile": True}
GROUNDS = ("--pc-ground", "--pc-side", "--pc-raised", "--pc-said")
COLOUR_SCHEMES = {"light": "normal", "dark": "dark"}  # of scroll bars
TINTS = ("--token-likely", "--token-doubtful", "--token-unlikely", "--diff-here", "--diff-there", "--pc-mark")
CODE = ("--code-keyword", "--code-text", "--code-number", "--code-name", "--code-note", "--code-deleted")
# What is seen, upon what, and how much lighter or darker it has to be: 4.5 for text and 3 for the rest (WCAG 2.2).
CONTRASTS = (
    [(ink, ground, 4.5) for ink in ("--pc-text", "--pc-quiet", "--pc-accent", "--pc-danger") for ground in GROUNDS]
    + [("--pc-text", tint, 4.5) for tint in TINTS]
    + [(ink, "--pc-side", 4.5) for ink in CODE]
    + [("--pc-on-accent", "--pc-accent", 4.5), ("--pc-ground", "--pc-text", 4.5), ("--pc-ground", "--pc-danger", 4.5)]
    + [(f"--small-{state}", "--pc-side", 3) for state in ("cached", "held", "shared", "copied", "freed")]
    + [("--free-outline", "--pc-side", 3), ("--pc-accent", "--pc-line", 3), ("--pc-danger", "--pc-line", 3)]
)


def luminance(colour):
    shares = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
    return sum(weight * share for weight, share in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def contrast(one, other):
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(("left", "right", "ratio"), [("#ffffff", "#000000", 21.0), ("#777777", "#ffffff", 4.48)])
def test_contrast_is_what_the_guidelines_call_so(left, right, ratio):
    assert contrast(left, right) == pytest.approx(ratio, abs=0.005)


def test_everything_can_be_read_by_day_and_by_night(chat):
    names = sorted({name for ink, ground, _ in CONTRASTS for name in (ink, ground)})
    for theme in ("light", "dark"):
        chat.page.emulate_media(color_scheme=theme)
        expect(chat.page.locator("body")).to_have_class(
            re.compile(r"\bdark\b") if theme == "dark" else re.compile("^((?!dark).)*$")
        )
        colours = chat.page.evaluate(
            """names => {
                const style = getComputedStyle(document.body);
                return Object.fromEntries(names.map((name) => [name, style.getPropertyValue(name).trim()]));
            }""",
            names,
        )
        drawer = chat.page.locator("#pc-settings")
        assert drawer.evaluate("drawer => getComputedStyle(drawer).colorScheme") == COLOUR_SCHEMES[theme]
        faint = [pair for pair in CONTRASTS if contrast(colours[pair[0]], colours[pair[1]]) < pair[2]]
        assert faint == [], theme


def keep_notices(chat):
    """They stay, however long a busy machine takes to look at them."""
    chat.page.evaluate(
        """() => {
            const { setTimeout } = window;
            window.setTimeout = (work, ms) => (ms === 7000 ? 0 : setTimeout(work, ms));
        }"""
    )


def too_small(places):
    """What can be pressed there and isn't 40 pixels wide and high."""
    return places.evaluate_all(
        """places => places.flatMap((place) => [place, ...place.querySelectorAll("*")]).filter((element) => {
            if (!element.matches("button, summary, select, textarea, input")) return false;
            let { width, height } = element.getBoundingClientRect();
            for (let around = element.parentElement; around; around = around.parentElement) {
                if (getComputedStyle(around).overflow !== "hidden") continue; // what is cut off can't be pressed
                width = Math.min(width, around.clientWidth);
                height = Math.min(height, around.clientHeight);
            }
            return element.checkVisibility({ visibilityProperty: true }) && Math.min(width, height) < 40;
        }).map((element) => element.outerHTML)"""
    )


def test_what_a_finger_presses_is_large_enough_and_a_notice_is_over_everything(open_tab, engine, faults):
    faults.expected_errors.append("409")
    chat = open_tab(**FINGER)
    keep_notices(chat)
    engine.enqueue("<think>\nHm.\n</think>\n\n```python\nx = 1\n```")
    chat.ask("long " * 400)
    chat.page.locator(".composer input[type=file]").set_input_files(
        {"name": "picture.png", "mimeType": "image/png", "buffer": b"\x89PNG\r\n\x1a\n\x00\x00"}
    )
    expect(chat.notice).to_be_visible()
    assert too_small(chat.page.locator("body")) == []
    # The settings, which aren't in the same part of the page, cover all of it but what is told meanwhile.
    drawer = chat.open_settings()
    drawer.get_by_role("button", name="More").last.click()
    assert too_small(drawer.locator(".tab-like-container, .label-wrap, .slider_input_container")) == []
    wider = "blocks => blocks.filter((block) => block.scrollWidth > block.clientWidth).map((block) => block.id)"
    assert drawer.locator(".block").evaluate_all(wider) == []
    temperature = drawer.locator("#pc-temperature input[type=number]")
    temperature.fill("99")
    temperature.press("Tab")
    told = chat.notice.filter(has_text="Temperature: a number from 0 to 2.")
    expect(told).to_be_visible()
    assert told.evaluate(
        """told => {
            const { x, y, width, height } = told.getBoundingClientRect();
            return told.contains(document.elementFromPoint(x + width / 2, y + height / 2));
        }"""
    )

    # A tablet is touched as well.
    chat.page.locator("#pc-settings-close").click()
    chat.page.set_viewport_size(TABLET)
    assert too_small(chat.page.locator("body")) == []


def test_a_notice_covers_nothing_that_is_written_and_a_refusal_is_not_cut(open_tab, serve, faults):
    faults.expected_errors.append("409")
    served = serve(max_model_len=128)
    chat = open_tab(url=served.url)
    keep_notices(chat)
    chat.ask("Hello")
    chat.send("many words\n" * 40)
    expect(chat.notice).to_be_visible()
    # What wasn't taken stands in the field again, and the notice above that.
    expect(chat.field).not_to_have_value("")
    chat.page.wait_for_function(
        """() => {
            const notice = document.querySelector(".notice").getBoundingClientRect();
            const composer = document.querySelector(".composer").getBoundingClientRect();
            return notice.bottom < composer.top && composer.left <= notice.left && notice.right <= composer.right;
        }"""
    )
    expect(chat.price).to_have_class(re.compile("is-refusal"))
    assert chat.price.evaluate("price => price.scrollHeight - price.clientHeight") == 0


def test_right_to_left_is_read_so_and_code_is_not(chat, engine):
    engine.enqueue("1. **שלום** עולם\n2. ab\n\nEnglish, then שלום.\n\n> مرحبا.\n\n```\nx = 'ש'\n```")
    chat.ask("שלום, מה נשמע?")

    def direction(selector):
        return chat.page.locator(selector).first.evaluate("element => getComputedStyle(element).direction")

    assert direction(".is-user .body p") == "rtl"
    blocks = chat.reply().locator(":scope > :is(ol, p, blockquote, .code)")
    assert blocks.evaluate_all("blocks => blocks.map((block) => getComputedStyle(block).direction)") == [
        "rtl",
        "ltr",
        "rtl",
        "ltr",
    ]
    assert direction(".title") == direction(".chat-row a") == "rtl"
    chat.field.fill("שלום")
    assert direction(".composer textarea") == "rtl"
    chat.field.fill("hello")
    assert direction(".composer textarea") == "ltr"


def test_what_stands_at_an_edge_stands_at_it(open_tab, engine):
    chat = open_tab(**FINGER)
    chat.page.get_by_role("combobox", name="Replies").select_option("Compare…")
    dialog = chat.page.get_by_role("dialog", name="Compare")
    # Without scrolling to the end of its many fields.
    expect(dialog.get_by_role("button", name="Compare", exact=True)).to_be_in_viewport(ratio=1)
    dialog.get_by_role("group", name="Variant 2").get_by_label("Name", exact=True).fill(
        "a name that is much too long " * 3
    )
    dialog.get_by_role("button", name="Compare", exact=True).click()
    expect(chat.page.locator(".compared-names")).to_be_visible()
    engine.enqueue("one")
    engine.enqueue("two")
    chat.ask("Fish?")
    chat.page.get_by_role("button", name="Diff", exact=True).click()
    against = chat.page.get_by_role("combobox", name="Diff against")
    expect(against).to_be_visible()
    box = against.bounding_box()
    assert box["x"] + box["width"] <= PHONE["width"] - 14
    # The words that tell of a broken line leave the title its room.
    chat.page.evaluate("document.querySelector('.pc').classList.add('is-cut-off')")
    assert chat.page.locator(".title").evaluate("title => title.scrollWidth - title.clientWidth") == 0
    assert chat.overflow() == 0
