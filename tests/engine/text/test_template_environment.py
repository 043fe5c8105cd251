"""What a chat template may do, and what stops it."""

import time
import tracemalloc
from datetime import datetime

import pytest

from paged_chat.engine.errors import ChatTemplateInvalid
from paged_chat.engine.text.chat_message import ChatMessage
from paged_chat.engine.text.chat_template import ChatTemplate
from paged_chat.engine.text.template_budget import RenderLimits
from paged_chat.engine.text.template_environment import UNUSED_FILTERS
from paged_chat.engine.text.tokenizer import Tokenizer

LIMITS = RenderLimits(max_seconds=0.2, max_chars=100_000, max_bytes=8_000_000)
TWICE = "{% set n = namespace(x=1, y=1) %}{% for i in range(60) %}"  # sixty rounds of which each doubles something


def render(tokenizer: Tokenizer, source: str, content: str = "hello") -> str:
    return ChatTemplate(tokenizer, source, LIMITS).render([ChatMessage("user", content)])


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{% for i in [0, 1, 2] %}{% if i == 1 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "02"),
        ("{% for i in range(9) %}{% if i == 2 %}{% break %}{% endif %}{{ i }}{% endfor %}", "01"),
        ("  {% if true %}\n  a\n  {% endif %}\nb", "  a\nb"),
        ("{{ {'a': '<é>', 'b': [1]} | tojson }}", '{"a": "<é>", "b": [1]}'),
        ("{{ {'a': 1} | tojson(indent=2) }}", '{\n  "a": 1\n}'),
        ("{% set ns = namespace(n=1) %}{% for i in range(3) %}{% set ns.n = ns.n * 2 %}{% endfor %}{{ ns.n }}", "8"),
        ("{{ bos_token }}{{ messages[-1].content ~ '!' ~ 1 }}{{ eos_token }}", "<|im_start|>hello!1<|im_end|>"),
        ("{{ messages[0]['content'].upper().replace('L', '1') }}{{ 'a,b'.split(',') | join('-') }}", "HE11Oa-b"),
        ("{% macro twice(x) %}{{ x }}{{ x }}{% endmacro %}{{ twice('ab') }}{{ '%s-%d' % ('a', 1) }}", "ababa-1"),
        ("{{ 'a{}c'.format('b') }}{{ messages | map(attribute='role') | list | length }}", "abc1"),
        ("{% for m in messages %}{{ loop.index }}{{ loop.last }}{{ loop.length }}{% endfor %}", "1True1"),
        ("{{ tools is none }}{{ documents is none }}{{ enable_thinking is defined }}", "TrueTrueFalse"),
        ("{{ messages[0].nothing }}|{{ dict(a=1).a }}", "|1"),
    ],
)  # fmt: skip
def test_what_templates_of_models_use(byte_level: Tokenizer, source: str, expected: str) -> None:
    assert render(byte_level, source) == expected


def test_the_date_of_today(byte_level: Tokenizer) -> None:
    assert render(byte_level, "{{ strftime_now('%Y') }}") == str(datetime.now().year)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(role='system') }}",
        "{{ raise_exception.__globals__['os'] }}",
        "{{ cycler.__init__.__globals__.os }}",
        "{{ ('{0.__class__.__mro__}').format(1) }}",
        "{% set ns = namespace(__class__=1) %}",
        "{% set ns = namespace() %}{% set ns.__class__ = 1 %}",
        "{% include '/etc/passwd' %}",
        "{{ lipsum(100000) }}",
        "{{ undefined_function() }}",
        "{% for %}",
        "{{ 1 / 0 }}",
        "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
        "{% if true %}" * 200 + "{% endif %}" * 200,
        "{{ a" + ".b" * 20_000 + " }}",
        "{{ " + " + ".join(["1"] * 20_000) + " }}",
        "{% if a %}" + "{% elif a %}" * 3000 + "{% endif %}",
        "x" * 100_001,
        "{{ 'a'.encode() }}",
        "{{ (1).to_bytes(10, 'big') }}",
        "{{ 'a'.encode().ljust(10**10) }}",
        "{{ [1, 2] | random }}",
        "{{ ['a'] | map('attr', '__class__') | map('call') | list }}",
        "{{ '{0.__class__.__init__.__globals__}'.format_map({'0': 1}) }}",
        "{{ self.__init__.__globals__.__builtins__ }}",
        "{{ joiner.__init__.__globals__ }}",
        "{% import 'os' as os %}{{ os }}",
        "{% extends '/etc/passwd' %}",
    ],
    ids=lambda source: source[:80],
)
def test_what_a_template_may_not_do_is_refused(byte_level: Tokenizer, source: str) -> None:
    with pytest.raises(ChatTemplateInvalid):
        render(byte_level, source)


@pytest.mark.parametrize(
    "source",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(10**9) %}{% endfor %}",
        "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = '%s%s' % (ns.x, ns.x) %}{% endfor %}",
        "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x.replace('a', ns.x) %}{% endfor %}",
        "{% set n = namespace(x='ab') %}{% for i in range(60) %}{% set n.x = n.x | replace('a', n.x) %}{% endfor %}",
        "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = [ns.x, ns.x] | join %}{% endfor %}",
        "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x.join(ns.x) %}{% endfor %}",
        "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
        "{% set ns = namespace(x=2) %}{% for i in range(60) %}{% set ns.x = ns.x * ns.x %}{% endfor %}",
        "{{ 'a' * 10000000000 }}",
        "{{ 10000000000 * [1] }}",
        "{{ 10 ** 10000000000 }}",
        "{{ 'a'.center(10000000000) }}",
        "{{ 'a' | center(10000000000) }}",
        "{{ 'a'.ljust(width=10000000000) }}",
        "{{ '%10000000000d' % 1 }}",
        "{{ '%*d' % (10000000000, 1) }}",
        "{{ '{:10000000000}'.format(1) }}",
        "{{ '{:{}}'.format(1, 10000000000) }}",
        "{{ '%10000000000d' | format(1) }}",
        "{{ 'a\na' | indent(10000000000) }}",
        "{{ [1] | batch(10000000000, 0) | list }}",
        "{{ [1] | tojson(indent=10000000000) }}",
        "{{ strftime_now('%999999999d') }}",
        "{% for i in range(99999) %}{{ messages[0].content * 9 }}{% endfor %}",
        # The same list twice in a list that is twice in a list …: few bytes, and a text as large as the memory.
        TWICE + "{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x }}",
        TWICE + "{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x | tojson }}",
        TWICE + "{% set n.x = [n.x, n.x] %}{% endfor %}{{ n.x ~ '' }}",
        TWICE + "{% set n.x = {'a': n.x, 'b': n.x} %}{% endfor %}{{ '%s' % n.x }}",
        TWICE + "{% set n.x = [n.x, n.x] %}{% set n.y = [n.y, n.y] %}{% endfor %}{{ n.x == n.y }}",
        TWICE + "{% set n.x = (n.x, n.x) %}{% endfor %}{{ {n.x: 1} }}",
        TWICE + "{% set n.x = dict(a=n.x, b=n.x) %}{% endfor %}{{ n.x | string }}",
        "{% set n = namespace(x=[1]) %}{% for i in range(60) %}"
        "{% set n.x = (n.x + n.x) | batch(2) | list %}{% endfor %}{{ n.x }}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1, varargs, varargs) }}{% else %}{{ varargs }}{% endif %}{% endmacro %}"
        "{{ f(60) }}",
        # What is gone counts too: nobody knows when Python gives it back.
        "{{ range(99999) | map('center', 99999) | list }}",
        "{% set n = namespace(x=[]) %}{% for i in range(999) %}{% set n.x = n.x + ['a' * 99999] %}{% endfor %}",
        "{% set s = 'a' * 99999 %}{% for i in range(999) %}{% set x = s[1:] %}{% endfor %}",
        "{% set s = 'a' * 99999 %}{% set x %}{% for i in range(999) %}{{ s }}{% endfor %}{% endset %}",
        "{% set x %}{% for i in range(999) %}" + "b" * 50_000 + "{% endfor %}{% endset %}",
        "{% macro f() %}" + "b" * 50_000 + "{% endmacro %}{% for i in range(999) %}{% set x = f() %}{% endfor %}",
        "{% for i in range(99999) if range(99999) | list | length < 0 %}{% endfor %}",
        "{{ 'ab' | replace('a', '" + "a" * 10_000 + "') | replace('a', '" + "a" * 10_000 + "') }}",
        "{{ ([1] * 9999) | tojson(separators=('a' * 9999, 'b')) }}",
        "{{ ([[1]] * 9999) | tojson(indent='a' * 9999) }}",
        "{{ ('a' * 9999).join(range(9999) | map('string')) }}",
        "{{ {1: 2, 3: 4, 5: 6} | join('a' * 90000) }}",
        "{{ ('%s' * 999) % (('a' * 999,) * 999) }}",
        "{{ ('{0}' * 999).format('a' * 9999) }}",
        "{{ ('{:9999}' * 999).format(*range(999)) }}",
        "{{ ([[1]] * 9999) | sum(start=[]) }}",
        "{{ ('a' * 90000).strip('b' * 9999) }}",
    ],
    ids=lambda source: source[-80:],
)
def test_a_template_that_spins_or_explodes_is_stopped(byte_level: Tokenizer, source: str) -> None:
    started = time.thread_time()
    with pytest.raises(ChatTemplateInvalid):
        render(byte_level, source)
    assert time.thread_time() - started < 2


@pytest.mark.parametrize("filter_name", UNUSED_FILTERS)
def test_filters_that_no_chat_needs_are_not_there(byte_level: Tokenizer, filter_name: str) -> None:
    with pytest.raises(ChatTemplateInvalid, match=f"No filter named '{filter_name}'"):
        render(byte_level, f"{{{{ messages | {filter_name} }}}}")


def test_what_a_template_holds_of_its_own_is_shown_by_no_text(byte_level: Tokenizer) -> None:
    source = "{% set a = namespace(x=1) %}{% set a.x = namespace(y=a) %}{{ a }}{{ [a] }}"
    assert render(byte_level, source) == "<namespace>[<namespace>]"


def test_memory_is_bounded_while_a_template_is_stopped(byte_level: Tokenizer) -> None:
    """The worst that the limits let through: everything that is made is held."""
    source = "{% set n = namespace(x='') %}{% for i in range(9999) %}{% set n.x = [n.x, ['é'] * 999] %}{% endfor %}"
    ChatTemplate(byte_level, "a", LIMITS).render([ChatMessage("user", "hello")])
    tracemalloc.start()
    try:
        with pytest.raises(ChatTemplateInvalid):
            render(byte_level, source)
        assert tracemalloc.get_traced_memory()[1] < 3 * LIMITS.max_bytes
    finally:
        tracemalloc.stop()


def test_long_chats_are_within_the_limits(byte_level: Tokenizer) -> None:
    messages = [ChatMessage("user", "word " * 1000)] * 500
    text = ChatTemplate(byte_level, "{% for m in messages %}{{ m.content + '\n' }}{% endfor %}").render(messages)
    assert len(text) == 500 * 5001
