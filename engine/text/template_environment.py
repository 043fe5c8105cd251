"""Where chat templates run: Jinja with Hugging Face's additions, and with limits.

A chat template is a program that came with a model file. The sandbox keeps it from reaching Python; the limits here
keep it from running for ever and from filling the memory. A limit is checked before an operation wherever its result
could be far larger than what goes in (`"a" * 10**9`), and afterwards everywhere else.
"""

import functools
import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

MAX_NUMBER = 100_000  # as an argument: a width, an indentation, a count
MAX_INTEGER_BITS = 1024
MAX_STRFTIME_CHARS = 100


class TemplateRefusal(TemplateError):
    """The template itself refused the messages, through `raise_exception`."""


class TemplateLimit(TemplateError):
    """The template went beyond a limit."""


@dataclass(frozen=True, slots=True)
class RenderLimits:
    """What one rendering may use.

    max_seconds: processor time of this thread, so a busy machine isn't held against the template.
    max_chars: longest text, and most items in a list, at any moment; what the messages hold comes on top.
    """

    max_seconds: float = 5.0
    max_chars: int = 4_000_000


@dataclass(frozen=True, slots=True)
class _Budget:
    deadline: float  # in seconds of time.thread_time()
    max_chars: int


_budget: ContextVar[_Budget | None] = ContextVar("_budget", default=None)
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
    """Compiles chat templates the way transformers does (blocks trimmed, loop controls, `generation` blocks)."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        # The optimiser would compute constant expressions while compiling, outside of any limit.
        super().__init__(trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=["jinja2.ext.loopcontrols"])
        self.add_extension("jinja2.ext.do")
        del self.globals["lipsum"]
        self.globals |= {"raise_exception": _refuse, "strftime_now": _strftime_now, "namespace": _TemplateNamespace}
        self.filters["tojson"] = _tojson
        self.filters = {name: _limited_filter(name, function) for name, function in self.filters.items()}

    @contextmanager
    def limited(self, limits: RenderLimits) -> Iterator[None]:
        """Within this block, templates that run in this thread are held to these limits."""
        token = _budget.set(_Budget(time.thread_time() + limits.max_seconds, limits.max_chars))
        try:
            yield
        finally:
            _budget.reset(token)

    def check_time(self) -> str:
        """Called in every round of a loop and before every call; the empty text lets a template "print" it."""
        budget = _budget.get()
        if budget is not None and time.thread_time() > budget.deadline:
            raise TemplateLimit("it takes too long")
        return ""

    def concatenated(self, *parts: Any) -> str:
        """The `~` operator."""
        texts = [str(part) for part in parts]
        _check_size(sum(map(len, texts)))
        return "".join(texts)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        # The names are Jinja's: a template may pass a keyword argument called `self`.
        __self.check_time()
        method = getattr(__obj, "__wrapped__", __obj)  # Jinja wraps str.format
        owner = getattr(method, "__self__", None)
        if isinstance(owner, str):
            _check_growth(getattr(method, "__name__", ""), owner, args, kwargs)
        return _checked(super().call(__context, __obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if operator == "**":
            if not (isinstance(left, int | float) and isinstance(right, int | float) and abs(right) <= 64):
                raise TemplateLimit("it raises a number to too high a power")
        elif operator == "*":
            for sequence, times in ((left, right), (right, left)):
                if isinstance(sequence, str | list | tuple) and isinstance(times, int):
                    _check_size(len(sequence) * times)
        elif operator == "%" and isinstance(left, str):
            _check_format(left)
        return _checked(super().call_binop(context, operator, left, right))

    def _generate(self, source: nodes.Template, *args: Any, **kwargs: Any) -> str:
        # Jinja's own hook for other ways to compile.
        return super()._generate(_Limiter(self).visit(source), *args, **kwargs)


class _Limiter(NodeTransformer):
    """Puts the checks into a parsed template that Jinja's sandbox doesn't offer a hook for."""

    def __init__(self, environment: TemplateEnvironment) -> None:
        self._environment = environment

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        check = nodes.ExprStmt(self._call("check_time", []), lineno=node.lineno)
        check.set_environment(self._environment)
        node.body.insert(0, check)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        call = self._call("concatenated", node.nodes)
        call.set_lineno(node.lineno)
        return call

    def _call(self, method: str, arguments: list[nodes.Expr]) -> nodes.Call:
        call = nodes.Call(nodes.EnvironmentAttribute(method), arguments, [], None, None)
        call.set_environment(self._environment)
        return call


class _TemplateNamespace(Namespace):
    """`namespace()` without names that begin with an underscore, which Python gives a meaning of its own."""

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


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as transformers writes it into a prompt: Jinja's own filter would escape it for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _limited_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    # Filters that want the context or the environment get it before the value.
    position = 1 if hasattr(function, "jinja_pass_arg") else 0

    @functools.wraps(function)
    def limited(*args: Any, **kwargs: Any) -> Any:
        value, *rest = args[position:]
        if name == "join" and not isinstance(value, str | list | tuple | Mapping):
            value = list(value)
            args = (*args[:position], value, *rest)
        _check_growth(name, value, rest, kwargs)
        return _checked(function(*args, **kwargs))

    return limited


def _check_growth(name: str, value: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
    """Refuse a filter or string method whose result could be far larger than what goes in."""
    arguments = [*args, *kwargs.values()]
    if any(isinstance(argument, int) and abs(argument) > MAX_NUMBER for argument in arguments):
        raise TemplateLimit("it asks for too large a number of characters")
    texts = [argument for argument in arguments if isinstance(argument, str)]
    if name in ("format", "format_map"):
        _check_format(str(value))
    elif name == "translate":
        raise TemplateLimit("it uses str.translate")
    elif name == "replace" and len(texts) >= 2:
        text = str(value)
        _check_size(len(text) + text.count(texts[0]) * len(texts[1]))
    elif name == "join":
        # As a filter the value is the list; as a method the first argument is.
        separator, items = (value, args[0]) if isinstance(value, str) and args else (texts[0] if texts else "", value)
        if isinstance(items, str | list | tuple):
            _check_size(sum(len(str(item)) + len(separator) for item in items))
    elif name in ("indent", "expandtabs", "wordwrap", "urlize"):
        numbers = [argument for argument in arguments if isinstance(argument, int)]
        widths = [*numbers, *(len(text) for text in texts), 8]
        _check_size(len(str(value)) + max(widths) * (len(re.findall(r"\s", str(value))) + 1))


def _check_format(format_: str) -> None:
    if re.search(r"\d{5}|\*", format_):
        raise TemplateLimit("it formats text with too large a width")


def _checked(result: Any) -> Any:
    if isinstance(result, str | list | tuple | dict):
        _check_size(len(result))
    elif isinstance(result, int) and result.bit_length() > MAX_INTEGER_BITS:
        raise TemplateLimit("it computes with too large numbers")
    return result


def _check_size(size: int) -> None:
    budget = _budget.get()
    if budget is not None and size > budget.max_chars:
        raise TemplateLimit(f"it builds a text or list of more than {budget.max_chars:,} characters or items")
