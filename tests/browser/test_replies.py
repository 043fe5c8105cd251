"""A person writes, reads, stops, goes on, tries again, and branches."""

import re

import pytest
from playwright.sync_api import expect

from paged_chat.app.attachments import MAX_ATTACHMENT_BYTES

NEXT_PROMPT = "What is next?"


def test_a_reply_streams_and_is_there_after_a_reload(chat, engine, served):
    engine.enqueue("Alfama first, then Belém.")
    engine.hold()
    chat.send("three days in Lisbon")
    expect(chat.questions).to_have_text(re.compile("three days in Lisbon"))
    engine.let(10)
    expect(chat.reply()).to_have_text("Alfama fir")
    expect(chat.replies).to_have_attribute("aria-busy", "true")
    engine.go()
    expect(chat.reply()).to_have_text("Alfama first, then Belém.")
    chat.wait_for_end()
    expect(chat.replies.locator(".cost")).to_have_text(
        re.compile(r"^smollm2-135m · 0 reused · \d+ computed · 26 tokens · TTFT .* · \d+ tok/s$")
    )
    chat.page.reload()
    expect(chat.reply()).to_have_text("Alfama first, then Belém.")
    expect(chat.page).to_have_title("three days in Lisbon · paged-chat")
    assert served.service.chat(chat.chat_id).title == "three days in Lisbon"


def test_what_is_selected_in_a_growing_reply_stays_selected(chat, engine):
    engine.enqueue("Some *words* of a paragraph and more")
    engine.hold()
    chat.send("Begin")
    engine.let(20)
    expect(chat.reply()).to_contain_text("Some words of a")
    chat.page.evaluate("getSelection().selectAllChildren(document.querySelector('.is-live .body em'))")
    engine.go()
    expect(chat.reply()).to_have_text("Some words of a paragraph and more")
    assert chat.page.evaluate("getSelection().toString()") == "words"


def test_a_page_that_follows_stays_at_the_end_and_one_that_reads_above_stays_there(chat, engine):
    engine.enqueue("line\n\n" * 60)
    engine.hold()
    chat.send("Begin")
    engine.let(200)
    expect(chat.reply().locator("p").nth(30)).to_be_visible()
    chat.page.wait_for_function("pagedChat.conversation.scroller.scrollTop > 100")
    chat.page.evaluate("pagedChat.conversation.scroller.scrollTop = 40")
    expect(chat.page.get_by_role("button", name="To the newest message")).to_be_visible()
    engine.go()
    expect(chat.reply().locator("p")).to_have_count(60)
    assert chat.page.evaluate("pagedChat.conversation.scroller.scrollTop") == 40


def test_one_of_the_three_prompts_begins_a_chat(chat, engine):
    engine.enqueue("It scatters.")
    chat.page.get_by_role("button", name=re.compile("why the sky is blue")).click()
    expect(chat.reply()).to_have_text("It scatters.")
    assert chat.chat_id is not None


def test_enter_sends_and_shift_enter_breaks_the_line(chat):
    chat.field.press_sequentially("one")
    chat.field.press("Shift+Enter")
    chat.field.press_sequentially("two")
    chat.field.press("Enter")
    expect(chat.questions.locator(".body p")).to_have_text("one\ntwo", use_inner_text=True)
    expect(chat.field).to_have_value("")


def test_markdown_code_formulas_and_thinking_are_drawn(chat, engine):
    engine.enqueue("<think>\nHm.\n</think>\n\n**Bold**\n\n```python\nx = 'a'\n```\n\n$\\frac{1}{2}$ <b>no tag</b>")
    chat.ask("Show all")
    reply = chat.reply()
    expect(reply.locator("strong")).to_have_text("Bold")
    expect(reply.locator(".code .hl-s1")).to_have_text("'a'")
    expect(reply.locator("mfrac")).to_have_count(1)
    expect(reply).to_contain_text("<b>no tag</b>")
    thinking = reply.locator("details")
    expect(thinking.get_by_text("Hm.")).to_be_hidden()
    thinking.locator("summary").click()
    expect(thinking.get_by_text("Hm.")).to_be_visible()


def test_a_root_has_its_sign(chat, engine):
    """Chromium draws none where the first font of a formula has no sign for it, as Noto Sans."""
    engine.enqueue("$\\sqrt{2}$")
    chat.ask("Root")
    root, inner = chat.reply().locator("msqrt").bounding_box(), chat.reply().locator("mn").bounding_box()
    assert root["width"] > inner["width"] * 1.5


def test_lines_of_equations_stand_under_each_other(chat, engine):
    engine.enqueue(r"$$\begin{aligned} ax^2 + bx &= 0 \\ \frac{x}{2} &= -\frac{b}{2a} \end{aligned}$$")
    chat.ask("Solve")
    expect(chat.reply().locator("mtr")).to_have_count(2)
    rows = chat.reply().evaluate(
        """reply => [...reply.querySelectorAll("mtr")].map((row) => {
            const [left, right] = row.children;
            const equals = [...right.children].find((element) => element.textContent === "=");
            return [left.lastElementChild.getBoundingClientRect().right, equals.getBoundingClientRect().left];
        })"""
    )
    assert rows[0] == pytest.approx(rows[1], abs=0.5)


def test_code_and_messages_can_be_copied(open_tab, engine):
    chat = open_tab(permissions=["clipboard-read", "clipboard-write"])
    engine.enqueue("Like so:\n\n```python\nx = 1\n```")
    chat.ask("How?")
    clipboard = "navigator.clipboard.readText()"
    chat.reply().get_by_role("button", name="Copy").click()
    expect(chat.reply().get_by_role("button", name="Copied")).to_be_visible()
    assert chat.page.evaluate(clipboard) == "x = 1\n"
    chat.press(chat.replies.last, "Copy the message")
    chat.page.wait_for_function(f"{clipboard}.then((text) => text.startsWith('Like so'))")
    assert chat.page.evaluate(clipboard) == "Like so:\n\n```python\nx = 1\n```"


def test_escape_stops_and_the_same_message_goes_on(chat, engine, served):
    engine.enqueue("one two three")
    engine.hold()
    chat.send("Count")
    engine.let(7)
    expect(chat.reply()).to_have_text("one two")
    chat.send("And then?")
    chat.page.keyboard.press("Enter")
    expect(chat.notice).to_have_count(1)
    expect(chat.notice).to_contain_text("A reply is being written")
    chat.page.keyboard.press("Escape")
    chat.wait_for_end()
    expect(chat.notice).to_have_count(0)
    expect(chat.field).to_have_value("And then?")
    expect(chat.replies.locator(".cost")).to_contain_text("stopped")
    engine.go()
    engine.enqueue(" and the rest")
    chat.press(chat.replies.last, "Continue")
    expect(chat.reply()).to_have_text("one two and the rest")
    chat.wait_for_end()
    expect(chat.replies).to_have_count(1)


def test_the_send_button_stops_while_a_reply_is_written(chat, engine):
    engine.enqueue("a long story")
    engine.hold()
    chat.send("Tell")
    engine.let(6)
    expect(chat.reply()).to_have_text("a long")
    chat.page.get_by_role("button", name="Stop (Esc)").click()
    chat.wait_for_end()
    expect(chat.reply()).to_have_text("a long")
    expect(chat.page.get_by_role("button", name="Send (Enter)")).to_be_visible()


def test_retry_adds_a_sibling_and_the_arrows_walk_between_them(chat, engine):
    engine.enqueue("first try")
    chat.ask("Try")
    engine.enqueue("second try")
    chat.press(chat.replies.last, "Retry")
    expect(chat.reply()).to_have_text("second try")
    chat.wait_for_end()
    expect(chat.replies.locator(".sibling-count")).to_have_text("2 / 2")
    chat.replies.get_by_role("button", name="The one before").click()
    expect(chat.reply()).to_have_text("first try")
    expect(chat.replies.locator(".sibling-count")).to_have_text("1 / 2")
    expect(chat.replies.get_by_role("button", name="The one before")).to_be_disabled()


def test_an_edit_says_what_it_costs_and_keeps_the_other_branch(chat, engine):
    engine.enqueue("about cats")
    chat.ask("Tell me something about cats, in the style of an old book")
    chat.press(chat.questions.first, "Edit")
    edited = chat.page.get_by_role("textbox", name="Edit the message")
    edited.fill("Tell me something about cats, in the style of a telegram")
    price = chat.questions.locator(".price")
    expect(price).to_have_text(re.compile(r"^reuses \d+ blocks and \d+ tokens, computes \d+ tokens\b"))
    engine.enqueue("CATS STOP")
    edited.press("Enter")
    expect(chat.reply()).to_have_text("CATS STOP")
    expect(chat.questions.locator(".sibling-count")).to_have_text("2 / 2")
    chat.questions.get_by_role("button", name="The one before").click()
    expect(chat.reply()).to_have_text("about cats")


def test_retry_edit_and_fork_say_what_they_cost_before_they_are_pressed(chat, engine):
    engine.enqueue("about cats")
    chat.ask("Tell me something about cats, in the style of an old book")
    computes_one = re.compile(r"^reuses \d+ blocks and \d+ tokens, computes 1 token\b")
    preview = chat.replies.locator(".preview")
    chat.replies.hover()
    chat.replies.get_by_role("button", name="Retry").hover()
    expect(preview).to_have_text(computes_one)
    row, words = chat.replies.locator(".tools").bounding_box(), preview.bounding_box()
    assert row["y"] <= words["y"], "it covers nothing that is written"
    assert words["y"] + words["height"] <= row["y"] + row["height"]
    chat.replies.get_by_role("button", name="Fork").focus()
    expect(preview).to_have_text(re.compile(r"^what is said there next reuses \d+ blocks and \d+ tokens$"))
    chat.field.hover()
    chat.field.focus()
    expect(preview).to_be_hidden()
    chat.questions.hover()
    chat.questions.get_by_role("button", name="Edit").hover()
    expect(chat.questions.locator(".preview")).to_have_text(computes_one)
    assert len(chat.page.locator(".message").all()) == 2, "nothing was begun"


def test_a_fork_begins_a_chat_with_all_up_to_there(chat, engine):
    engine.enqueue("root")
    chat.ask("Begin with something that is much too long for the list of chats")
    first_chat_id = chat.chat_id
    chat.press(chat.replies.last, "Fork")
    chat.page.wait_for_url(lambda url: first_chat_id not in url)
    expect(chat.reply()).to_have_text("root")
    expect(chat.rows).to_have_count(2)
    mark, sidebar = chat.rows.first.locator(".title-mark"), chat.page.locator(".chat-list")
    expect(mark).to_have_text("(fork)")
    right = mark.bounding_box()["x"] + mark.bounding_box()["width"]
    assert right <= sidebar.bounding_box()["x"] + sidebar.bounding_box()["width"], "whatever else is cut"


def test_a_deleted_message_comes_back_with_undo(chat, engine):
    engine.enqueue("keep me")
    chat.ask("Say")
    chat.press(chat.replies.last, "Delete")
    expect(chat.replies).to_have_count(0)
    chat.notice.get_by_role("button", name="Undo").click()
    expect(chat.reply()).to_have_text("keep me")


def test_the_first_message_of_a_chat_has_its_price_too(chat, engine, served):
    chat.field.fill("A question")
    expect(chat.price).to_have_text("reuses nothing, computes 27 tokens")
    expect(chat.page.locator(".composer .meter-words")).to_have_text("27 / 4,096")
    assert served.service.chats() == []
    engine.enqueue("An answer.")
    chat.ask("A question")
    chat.page.get_by_role("button", name="+ New chat").click()
    chat.field.fill("A question")
    expect(chat.price).to_have_text(re.compile("^reuses 1 block and 10 tokens, computes 1 token(,|$)"))


def test_what_sending_costs_is_shown_before_it_is_sent(chat, engine):
    engine.enqueue("The first answer.")
    chat.ask("A first question that fills some blocks of the cache")
    chat.field.fill(NEXT_PROMPT)
    expect(chat.price).to_have_text(re.compile(r"^reuses \d+ blocks and \d+ tokens, computes \d+ tokens\b"))
    expect(chat.page.locator(".composer .meter-words")).to_have_text(re.compile(r"^\d+ / 4,096$"))


def test_old_turns_that_do_not_fit_are_greyed(open_tab, serve):
    served = serve(max_model_len=256)
    chat = open_tab(url=served.url)
    for turn in range(4):
        served.engine.enqueue("yes " * 12)
        chat.ask(f"question {turn} " + "word " * 8)
    expect(chat.page.locator(".message.is-left-out").first).to_be_visible()
    expect(chat.page.locator(".boundary")).to_have_text(re.compile(r"^The \d+ messages above don't fit"))
    expect(chat.questions.last).not_to_have_class(re.compile("is-left-out"))


def test_what_will_be_left_out_is_seen_before_it_is_sent(open_tab, serve):
    chat = open_tab(url=serve(max_model_len=256).url)
    chat.ask("q" * 40)
    chat.field.fill("short")
    expect(chat.price).to_have_text("reuses 4 blocks, computes 22 tokens")
    expect(chat.page.locator(".message.is-left-out")).to_have_count(0)
    chat.field.fill("w" * 180)
    expect(chat.price).to_have_text(re.compile("; 1 old turn is left out$"))
    expect(chat.page.locator(".message.is-left-out")).to_have_count(2)
    expect(chat.page.locator(".boundary")).to_have_text(re.compile("^The 2 messages above don't fit"))
    chat.field.fill("")
    expect(chat.page.locator(".message.is-left-out")).to_have_count(0)


def test_a_file_is_attached_with_its_tokens_counted(chat, engine):
    chat.page.locator(".composer input[type=file]").set_input_files(
        {"name": "notes.txt", "mimeType": "text/plain", "buffer": b"abcd " * 100}
    )
    expect(chat.page.locator(".chip")).to_have_text(re.compile(r"notes\.txt\s*500 tokens"))
    engine.enqueue("read")
    chat.ask("What is in it?")
    expect(chat.questions.locator(".body")).to_contain_text("File notes.txt:")
    code = chat.questions.locator(".body pre")
    expect(code).to_have_text("abcd " * 99 + "abcd\n")
    assert code.evaluate("code => code.scrollWidth - code.clientWidth") == 0, "it is read without scrolling sideways"
    expect(chat.page.locator(".title")).to_have_text("What is in it?")
    expect(chat.page.locator(".chip")).to_have_count(0)


def test_a_file_that_is_no_text_is_refused_with_the_reason(chat, faults):
    faults.expected_errors.append("409")
    chat.page.locator(".composer input[type=file]").set_input_files(
        {"name": "picture.png", "mimeType": "image/png", "buffer": b"\x89PNG\r\n\x1a\n\x00\x00"}
    )
    expect(chat.notice).to_contain_text("picture.png isn't text")
    expect(chat.page.locator(".chip")).to_have_count(0)


def test_a_file_that_is_too_large_is_refused_by_the_page_and_by_the_server(chat, served, faults):
    faults.expected_errors.append("409")
    large = b"a" * (MAX_ATTACHMENT_BYTES + 1)
    file = {"name": "large.txt", "mimeType": "text/plain", "buffer": large}
    chat.page.locator(".composer input[type=file]").set_input_files(file)
    expect(chat.notice).to_contain_text("large.txt is larger than 1 MB: attach or paste the part that matters.")
    expect(chat.page.locator(".chip")).to_have_count(0)
    answer = chat.page.evaluate(
        """async (size) => {
            const body = "a".repeat(size);
            const sent = await fetch("/paged-chat/attachments?name=large.txt", {method: "POST", body});
            return [sent.status, (await sent.json()).error];
        }""",
        len(large),
    )
    assert answer == [409, "the file is larger than 1 MB: paste the part that matters"]


def test_a_long_paste_becomes_an_attachment(open_tab):
    chat = open_tab(permissions=["clipboard-read", "clipboard-write"])
    chat.page.evaluate("navigator.clipboard.writeText('word '.repeat(1000))")
    chat.field.focus()
    chat.page.keyboard.press("Control+V")
    expect(chat.page.locator(".chip")).to_have_text(re.compile(r"Pasted text\.txt\s*\d,\d+ tokens"))
    expect(chat.field).to_have_value("")


def test_a_refused_message_stays_in_its_field(open_tab, serve, faults):
    faults.expected_errors.append("409")
    served = serve(max_model_len=128)
    chat = open_tab(url=served.url)
    expect(chat.page.locator(".welcome .loading")).to_be_hidden()
    chat.send("x" * 500)
    expect(chat.notice).to_contain_text("128")
    expect(chat.field).to_have_value("x" * 500)


def test_a_reply_that_fails_says_why_and_can_be_tried_again(chat, engine):
    engine.enqueue_failure("half a", "the script broke")
    chat.send("Say")
    expect(chat.replies.locator(".fault")).to_contain_text("the script broke")
    engine.enqueue("whole")
    chat.press(chat.replies.last, "Retry")
    expect(chat.reply()).to_have_text("whole")
