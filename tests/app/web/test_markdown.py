"""What a model writes, as HTML: drawn, and harmless."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paged_chat.app.web.markdown import render_question, render_reply
from paged_chat.app.web.streaming_markdown import BlockChange, StreamingMarkdown

LINK = 'target="_blank" rel="noopener noreferrer nofollow"'


def test_each_block_is_one_element():
    assert render_reply("# A\n\nb *c*\n\n- d\n- e\n\n***") == (
        "<h1>A</h1>",
        "<p>b <em>c</em></p>",
        "<ul>\n<li>d</li>\n<li>e</li>\n</ul>",
        "<hr />",
    )


def test_the_lines_of_a_poem_stay_lines():
    assert render_reply("An old silent pond\nA frog jumps in") == ("<p>An old silent pond<br />\nA frog jumps in</p>",)


def test_code_is_coloured_named_and_escaped():
    [block] = render_reply('```python extra\nprint("<b>")\n```')
    assert '<div class="code-head"><span>python</span>' in block
    assert '<span class="hl-nb">print</span>' in block
    assert "&lt;b&gt;" in block
    assert "<b>" not in block


def test_code_that_some_lexers_never_finish_is_shown_as_it_is():
    """That of ng2, one of the five hundred languages of Pygments, tries two to the power of 4,000 ways."""
    source = "(" * 4000
    [block] = render_reply(f"```ng2\n{source}\n```")
    assert f"<code>{source}\n</code>" in block


def test_code_of_an_unknown_language_is_shown_as_it_is():
    [block] = render_reply("```zzz\n<a & b>\n```")
    assert "<code>&lt;a &amp; b&gt;\n</code>" in block


@pytest.mark.parametrize("formula", ["$x^2$", r"\(x^2\)"])
def test_formulas_in_a_line(formula):
    assert render_reply(f"so {formula} it is") == (
        '<p>so <span class="math"><math display="inline"><mrow><msup><mi>x</mi><mn>2</mn></msup></mrow></math></span>'
        " it is</p>",
    )


@pytest.mark.parametrize("formula", ["$$\nx\n$$", "$$x$$", r"\[ x \]", "\\[\nx\n\\]"])
def test_formulas_on_their_own(formula):
    [block] = render_reply(formula)
    assert '<math display="block"><mrow><mi>x</mi></mrow></math>' in block


@pytest.mark.parametrize(("text", "html"), [("a $$ $$ b", "$$ $$"), ("$$\n$$", "$$ $$")])
def test_a_formula_of_nothing_is_shown_as_it_was_written(text, html):
    [block] = render_reply(text)
    assert html in block
    assert "<code" not in block


def test_beside_a_formula_on_a_line_of_its_own_no_other_line_ends():
    [block] = render_reply("one\ntwo\n\\[\nx\n\\]\nthree")
    assert block.count("<br />") == 1
    assert block.startswith('<p>one<br />\ntwo\n<span class="math">')


@pytest.mark.parametrize(
    ("latex", "is_sign"),
    [("x=-b", True), ("(-1)", True), (r"x \ge -1", True), ("a-b", False), ("n!-1", False), (r"\infty-1", False)],
)
def test_a_sign_stands_at_its_number_and_a_difference_between_two(latex, is_sign):
    [block] = render_reply(f"${latex}$")
    assert ('<mo form="prefix">\u2212</mo>' in block) == is_sign


def test_long_cells_of_a_table_have_some_width():
    [block] = render_reply("| a | b |\n|---|--:|\n| short | " + "long words " * 3 + "|\n| " + "x" * 24 + " | y |")
    assert block.count("<td") == 4
    assert block.count('class="is-long"') == 1
    assert '<td style="text-align:right" class="is-long">long words long words long words</td>' in block


@pytest.mark.parametrize("operator", ["±", "⟹"])
def test_an_operator_is_no_name(operator):
    """The converter says so of some, and then they stand without space."""
    [block] = render_reply(rf"$a {operator} b$")
    assert f"<mi>a</mi><mo>{operator}</mo><mi>b</mi>" in block
    assert "<mi>π</mi>" in render_reply(r"$\pi$")[0]


def test_task_lists_have_boxes_that_nobody_can_tick():
    ticked = 'checked="checked" '
    box = 'class="task-list-item-checkbox" {}disabled="disabled" type="checkbox">'
    assert render_reply("- [ ] a *b*\n- [x] <c>\n- [y] d\n- [ ]") == (
        f'<ul>\n<li class="task-list-item"><input {box.format("")} a <em>b</em></li>\n'
        f'<li class="task-list-item"><input {box.format(ticked)} &lt;c&gt;</li>\n'
        "<li>[y] d</li>\n<li>[ ]</li>\n</ul>",
    )
    assert render_reply("[ ] a") == ("<p>[ ] a</p>",), "outside of a list it is text"


def test_a_text_longer_than_any_reply_is_shown_as_it_stands():
    """What an import holds may be made to take a server's time: half a megabyte of brackets."""
    text = "[" * 250_000 + "\n\n<b> *c*\n\n" + "![" * 125_000
    [before, between, after] = render_reply(text)
    assert (len(before), between, len(after)) == (250_007, "<p>&lt;b&gt; *c*</p>", 250_007)


def test_a_formula_that_is_opened_and_never_closed_is_text():
    assert render_reply(r"\(" * 5000) == (f"<p>{'(' * 5000}</p>",)
    assert render_reply(rf"\({'x' * 5000}\)") == (f"<p>({'x' * 5000})</p>",), "too long to be a formula"


def test_prices_are_no_formulas():
    assert render_reply("from $5 to $6, or $7") == ("<p>from $5 to $6, or $7</p>",)


def test_a_formula_nobody_understands_is_shown_as_its_source():
    assert render_reply(r"$\left( x<y$") == (
        r'<p><span class="math"><code class="math-source">\left( x&lt;y</code></span></p>',
    )


@pytest.mark.parametrize(
    ("attack", "html"),
    [
        ("<script>x()</script>", "<p>&lt;script&gt;x()&lt;/script&gt;</p>"),
        ('a <img src=x onerror="x()">', "<p>a &lt;img src=x onerror=&quot;x()&quot;&gt;</p>"),
        ("[a](javascript:x())", "<p>[a](javascript:x())</p>"),
        ("[a](//evil.example)", "<p><a>a</a></p>"),
        ("[a](/paged-chat/chats)", "<p><a>a</a></p>"),
        ("![a](https://e.example/p.png)", f'<p><a href="https://e.example/p.png" {LINK}>a</a></p>'),
        ("![a](data:image/png;base64,AA)", "<p>a</p>"),
        ('[a](https://e.example/"onclick="x)', f'<p><a href="https://e.example/%22onclick=%22x" {LINK}>a</a></p>'),
        ("[a](https://e.example)", f'<p><a href="https://e.example" {LINK}>a</a></p>'),
    ],
)
def test_nothing_in_a_message_is_obeyed(attack, html):
    assert render_reply(attack) == (html,)


@pytest.mark.parametrize(
    "latex",
    [
        r"\text{<script>x()</script>}",
        r"\href{javascript:x()}{a}",
        r"\style{background:url(http://e.example)}{a}",
        r"\class{pc}{a}",
        r'\color{red" onclick="x()}{a}',
        r"\unknown{<img src=x>}",
    ],
)
def test_nothing_in_a_formula_is_obeyed(latex):
    [block] = render_reply(f"${latex}$")
    for danger in ("<script", "<img", "href=", "style=", 'class="pc', 'onclick="', "onclick='"):
        assert danger not in block


def test_a_persons_lines_and_signs_stay_as_they_were_typed():
    assert render_question("# no *heading*\n  two  spaces <b>\n\n```py\nx=1\n```") == (
        "<p># no *heading*\n  two  spaces &lt;b&gt;</p>",
        '<div class="code"><div class="code-head"><span>py</span><button type="button" class="copy-code">Copy</button>'
        '</div><pre tabindex="0"><code><span class="hl-n">x</span><span class="hl-o">=</span><span class="hl-mi">1'
        "</span>\n</code></pre></div>",
    )


def test_thinking_is_folded_before_the_answer():
    assert render_reply("<think>\nHm, *so*.\n</think>\n\nYes.") == (
        '<details class="thinking"><summary>Thought</summary><div><p>Hm, <em>so</em>.</p></div></details>',
        "<p>Yes.</p>",
    )
    assert render_reply("Hm.\n</think>\nYes.")[1] == "<p>Yes.</p>", "the template wrote the opening tag"
    assert render_reply("<think>\n\n</think>\n\nYes.") == ("<p>Yes.</p>",), "nothing was thought"
    [unfinished] = render_reply("<think>Hm.")
    assert unfinished.startswith('<details class="thinking" data-open-ended=""><summary>Thinking…</summary>')


def grown(text: str, cuts: list[int]) -> tuple[str, ...]:
    """The blocks of a page that was told of a text bit by bit."""
    stream, page = StreamingMarkdown(), list[str]()
    for cut in [*sorted(cuts), len(text)]:
        change = stream.update(text[:cut])
        page[change.num_kept :] = change.new_blocks
    return tuple(page)


def test_a_growing_reply_sends_its_last_block_alone():
    stream = StreamingMarkdown()
    assert stream.update("One.\n\nTw") == BlockChange(0, ("<p>One.</p>", "<p>Tw</p>"))
    assert stream.update("One.\n\nTwo") == BlockChange(1, ("<p>Two</p>",))
    assert stream.update("One.\n\nTwo\n\n- a") == BlockChange(2, ("<ul>\n<li>a</li>\n</ul>",))
    assert stream.update("One.\n\nTwo\n\n- a") == BlockChange(3, ())


PIECES = st.sampled_from(
    [
        "word ",
        "\n",
        "\n\n",
        "# ",
        "- ",
        "1. ",
        "  ",
        "```",
        "```py\n",
        "> ",
        "| a | b |\n|---|---|\n",
        "$x$",
        "**",
        "===",
        "    code",
        "<think>",
        "</think>",
        "\\[",
        "\\]",
        "$$",
        "~~~",
        "---",
        "<b>",
        "[a](b)",
    ]
)


@given(st.lists(PIECES, max_size=25).map("".join), st.lists(st.integers(0, 200), max_size=8))
def test_however_a_reply_comes_it_ends_as_the_whole_is_drawn(text, cuts):
    assert grown(text, [cut for cut in cuts if cut < len(text)]) == render_reply(text)
