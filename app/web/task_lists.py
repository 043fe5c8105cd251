"""List items that begin with [ ] or [x], as boxes that nobody can tick."""

from __future__ import annotations

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

_BOXES = {"[ ] ": "", "[x] ": 'checked="checked" ', "[X] ": 'checked="checked" '}
_ITEM = ["list_item_open", "paragraph_open", "inline"]


def task_list_plugin(markdown: MarkdownIt) -> None:
    """Not that of mdit_py_plugins, which looks for the beginning of its list anew for each item: a long list would keep
    the server busy for minutes."""
    markdown.core.ruler.after("inline", "task_lists", _add_boxes)


def _add_boxes(state: StateCore) -> None:
    for item, paragraph, inline in zip(state.tokens, state.tokens[1:], state.tokens[2:], strict=False):
        state_of_box = _BOXES.get(inline.content[:4])
        if state_of_box is None or [item.type, paragraph.type, inline.type] != _ITEM or not inline.children:
            continue
        item.attrSet("class", "task-list-item")
        inline.children[0].content = inline.children[0].content[4:]
        box = f'<input class="task-list-item-checkbox" {state_of_box}disabled="disabled" type="checkbox"> '
        inline.children.insert(0, Token("html_inline", "", 0, content=box))
