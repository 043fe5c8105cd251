"""Where chat templates run: Jinja with Hugging Face's additions, and with limits.

A chat template is a program that came with a model file. The sandbox keeps it from reaching Python; the limits keep it
from running for ever and from filling the memory (see template_budget.py). A limit is checked before an operation
wherever its result could be far larger than what goes in (`"a" * 10**9`), and afterwards everywhere else.
"""

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes, pass_context
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

from .template_budget import TemplateLimit, budget

MAX_NUMBER = 100_000  # as an argument: a width, an indentation, a count
MAX_STRFTIME_CHARS = 100
# Of what JSON has before and between items, and of characters to strip: more multiply with a text's length.
MAX_FILLING_CHARS = 16
MAX_STRIPPED_CHARS = 1000
# No chat needs them, and each takes time or space far beyond the size of its text, or gives another one every time.
UNUSED_FILTERS = ("filesizeformat", "pprint", "random", "striptags", "urlize", "wordwrap", "xmlattr")


class TemplateRefusal(TemplateError):
    """The template itself refused the messages, through `raise_exception`."""


_readings: ContextVar[dict[str, str] | None] = ContextVar("_readings", default=None)


@contextmanager
def clock_readings() -> Iterator[dict[str, str]]:
    """What templates that run within this block read from the clock: each format with the text it gave.

    The clock is the only thing beside the messages that a template's text depends on.
    """
    readings: dict[str, str] = {}
    token = _readings.set(readings)
    try:
        yield readings
    finally:
        _readings.reset(token)


def read_clock(format_: str) -> str:
    """The local time in a format of strftime."""
    return datetime.now().strftime(format_)


class TemplateEnvironment(ImmutableSandboxedEnvironment):
    """Compiles chat templates the way transformers does (blocks trimmed, loop controls, `generation` blocks).

    To be used within `limited` (see template_budget.py), for compiling too.
    """

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        # The optimiser would compute constant expressions while compiling.
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,
            finalize=_written,
            extensions=["jinja2.ext.loopcontrols"],
        )
        self.add_extension("jinja2.ext.do")
        del self.globals["lipsum"]
        self.globals |= {"raise_exception": _refuse, "strftime_now": _strftime_now, "namespace": _TemplateNamespace}
        self.filters["tojson"] = _tojson
        for name in UNUSED_FILTERS:
            del self.filters[name]
        self.filters = {name: _limited_filter(name, function) for name, function in self.filters.items()}

    def check_round(self, num_chars: int) -> str:
        """Called in every round of a loop, and where a macro or block begins; `num_chars` of plain text are in it.

        The empty text lets a template "print" it.
        """
        budget().check_time()
        budget().spend(num_chars)
        return ""

    def made(self, value: Any) -> Any:
        """Called with every list, dictionary and slice that is written out in a template."""
        return value  # `call` measures it

    def concatenated(self, *parts: Any) -> str:
        """The `~` operator."""
        budget().check_size(sum(map(budget().size_of, parts)))
        return "".join(map(str, parts))

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Bytes and numbers have methods that fill the memory at a word, and no use in a chat."""
        is_measured = not isinstance(obj, bytes | int | float | complex) and attr != "encode"
        return is_measured and super().is_safe_attribute(obj, attr, value)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        # The names are Jinja's: a template may pass a keyword argument called `self`.
        left = budget()
        left.check_time()
        method = getattr(__obj, "__wrapped__", __obj)  # Jinja wraps str.format
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str):
            name = getattr(method, "__name__", "")
            if name == "join" and args:
                args = (_listed(args[0]), *args[1:])
            _check_growth(name, owner, args, kwargs)
        # A macro sees them as one tuple.
        left.check_size(sum(map(left.size_of, args)) + sum(map(left.size_of, kwargs.values())))
        return left.made(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            if not (isinstance(left, int | float) and isinstance(right, int | float) and abs(right) <= 64):
                raise TemplateLimit("it raises a number to too high a power")
        elif operator == "*":
            for sequence, times in ((left, right), (right, left)):
                if isinstance(sequence, str | list | tuple) and isinstance(times, int):
                    budget().check_size(budget().size_of(sequence) * times)
        elif operator == "%" and isinstance(left, str):
            _check_format(left, right if isinstance(right, tuple) else (right,))
        return budget().made(super().call_binop(context, operator, left, right))

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        # Jinja's own hook for other ways to compile.
        return super()._generate(_Limiter(self).visit(source), *args, **kwargs)


class _Limiter(NodeTransformer):
    """Puts the checks into a parsed template that Jinja's sandbox doesn't offer a hook for."""

    def __init__(self, environment: TemplateEnvironment) -> None:
        self._environment = environment

    def _visit_repeated(self, node: Any) -> nodes.Node:
        num_chars = sum(len(text.data) for text in node.find_all(nodes.TemplateData))
        self.generic_visit(node)
        check = nodes.ExprStmt(self._call("check_round", [nodes.Const(num_chars)]), lineno=node.lineno)
        check.set_environment(self._environment)
        node.body.insert(0, check)
        return node  # type: ignore[no-any-return]

    visit_For = visit_Macro = visit_CallBlock = visit_Block = _visit_repeated

    def _visit_made(self, node: Any) -> nodes.Node:
        self.generic_visit(node)
        is_target = getattr(node, "ctx", "load") != "load"
        is_part = isinstance(node, nodes.Getitem) and not isinstance(node.arg, nodes.Slice)
        return node if is_target or is_part else self._call("made", [node])

    visit_List = visit_Tuple = visit_Dict = visit_Getitem = _visit_made

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return self._call("concatenated", node.nodes)

    def _call(self, method: str, arguments: list[nodes.Expr]) -> nodes.Call:
        call = nodes.Call(nodes.EnvironmentAttribute(method), arguments, [], None, None)
        call.set_environment(self._environment)
        call.set_lineno(arguments[0].lineno or 1)
        return call


class _TemplateNamespace(Namespace):
    """`namespace()` without names that begin with an underscore, which Python gives a meaning of its own.

    As text it doesn't show what it holds: that may change, so its size isn't known.
    """

    def __repr__(self) -> str:
        return "<namespace>"

    def __init__(*args: Any, **kwargs: Any) -> None:
        # Jinja's own signature: a template may pass an argument called `self`.
        self, *rest = args
        for name in dict(*rest, **kwargs):
            _check_name(name)
        Namespace.__init__(self, *rest, **kwargs)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise TemplateLimit(f"it names a variable {name}")


def _refuse(message: str) -> NoReturn:
    raise TemplateRefusal(str(message))


def _strftime_now(format_: str) -> str:
    if len(format_) > MAX_STRFTIME_CHARS or re.search(r"\d{3}", format_):
        raise TemplateLimit("it writes the date in too long a form")
    text = read_clock(format_)
    if (readings := _readings.get()) is not None:
        readings[format_] = text
    return text


@pass_context  # also so that nothing is printed while compiling
def _written(_: Context, value: Any) -> str:
    """What `{{ value }}` prints."""
    left = budget()
    left.check_time()
    left.check_size(left.size_of(value))
    return left.made(str(value))


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | str | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as transformers writes it into a prompt: Jinja's own filter would escape it for HTML."""
    width = indent if isinstance(indent, int) else len(indent or "")
    if max([width, *map(len, separators or ())]) > MAX_FILLING_CHARS:
        raise TemplateLimit("it writes JSON with too much between the items")
    size, depth = budget().shape_of(value)
    budget().check_size(size + size * width * depth)
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _limited_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    # Filters that want the context or the environment get it before the value.
    position = 1 if hasattr(function, "jinja_pass_arg") else 0

    @functools.wraps(function)
    def limited(*args: Any, **kwargs: Any) -> Any:
        budget().check_time()
        value, *rest = args[position:]
        if name == "join":
            value = _listed(value)
            args = (*args[:position], value, *rest)
        _check_growth(name, value, rest, kwargs)
        return budget().made(function(*args, **kwargs))

    return limited


def _check_growth(name: str, value: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Refuse a filter or string method whose result could be far larger than what goes in, or take far longer."""
    left = budget()
    arguments = [*args, *kwargs.values()]
    if any(isinstance(argument, int) and abs(argument) > MAX_NUMBER for argument in arguments):
        raise TemplateLimit("it asks for too large a number of characters")
    texts = [argument for argument in arguments if isinstance(argument, str)]
    if name in ("format", "format_map"):
        _check_format(str(value), arguments)
    elif name == "translate":
        raise TemplateLimit("it uses str.translate")
    elif name in ("strip", "lstrip", "rstrip", "trim") and any(len(text) > MAX_STRIPPED_CHARS for text in texts):
        raise TemplateLimit("it strips too many characters")
    elif name == "sum" and not isinstance(kwargs.get("start", args[1] if len(args) > 1 else 0), int | float):
        raise TemplateLimit("it sums up what isn't numbers")
    elif name == "replace" and len(texts) >= 2:
        left.check_size(left.size_of(value))
        text = str(value)
        left.check_size(len(text) + text.count(texts[0]) * len(texts[1]))
    elif name == "join":
        # As a filter the value is the list; as a method the first argument is.
        separator, items = (value, args[0]) if isinstance(value, str) and args else (texts[0] if texts else "", value)
        if isinstance(items, str | list | tuple):
            left.check_size(left.size_of(items) + len(items) * len(separator))
    elif name in ("indent", "expandtabs"):
        numbers = [argument for argument in arguments if isinstance(argument, int)]
        widths = [*numbers, *(len(text) for text in texts), 8]
        left.check_size(left.size_of(value) + max(widths) * (len(re.findall(r"\s", str(value))) + 1))


def _check_format(format_: str, values: Sequence[Any]) -> None:
    """Each place of a format may hold the largest of the values, or be filled up to the greatest width."""
    if re.search(r"\d{5}|\*", format_):
        raise TemplateLimit("it formats text with too large a width")
    num_places = format_.count("%") + format_.count("{")
    width = max(map(int, re.findall(r"\d+", format_)), default=0)
    largest = max(map(budget().size_of, values), default=0)
    budget().check_size(len(format_) + num_places * (width + largest))


def _listed(items: Any) -> Any:
    """What is to be joined, so that its size is known before."""
    return items if isinstance(items, str | list | tuple) else budget().made(list(items))
