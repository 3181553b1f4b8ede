"""Templates from anywhere run no code, and end in bounded time and memory with one line."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import jinja2
import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from collab.errors import ConfigError
from collab.library import find_builtin_root
from collab.prompts.render import Templates
from collab.prompts.sandbox import Sandbox
from collab.prompts.sandbox import render as filled


def render(text: str, **values: object) -> str:
    return Templates("odd", {"system": text}, ["system"]).render("system", **values)


TOO_MUCH = {
    "a range": "{% for i in range(10**9) %}x{% endfor %}",
    "nested ranges": "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
    "a loop that shows": "{% for i in range(99999) %}" + "x" * 2000 + "{% endfor %}",
    "a text": '{{ "a" * 10**9 }}',
    "a text, the other way": '{{ 10**9 * "a" }}',
    "a list": "{{ [0] * 10**9 }}",
    "a number": "{{ 9**9**9**9**9 }}",
    "a number that grows": "{% set n = namespace(x=2) %}{% for i in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "doubling": "{% set n = namespace(x='a') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
    "adding": "{% set n = namespace(x='a') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "lists that grow": "{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
    "replacing": "{% set n = namespace(x='aa') %}{% for i in range(9) %}{% set n.x = n.x.replace('a', n.x) %}"
    "{% endfor %}",
    "replacing by filter": "{% set n = namespace(x='aa') %}{% for i in range(9) %}{% set n.x = n.x|replace('a', n.x) %}"
    "{% endfor %}",
    "center": '{{ "a"|center(10**9) }}',
    "center, as it stands": '{{ "a"|center(1000000000) }}',
    "the method center": '{{ "a".center(10**9) }}',
    "ljust": '{{ "a".ljust(10**9) }}',
    "zfill": '{{ "a".zfill(10**9) }}',
    "expandtabs": '{{ ("\\t" * 1000).expandtabs(10**6) }}',
    "indent": '{{ ("a\\n" * 10000)|indent(10000) }}',
    "indent by a text": '{{ ("a\\n" * 10000)|indent("x" * 10000) }}',
    "percent": '{{ "%999999999d" % 1 }}',
    "percent by star": '{{ "%*d" % (10**9, 1) }}',
    "percent by filter": '{{ "%999999999d"|format(1) }}',
    "braces": '{{ "{:999999999}".format(1) }}',
    "braces within braces": '{{ "{:{w}}".format(1, w=10**9) }}',
    "braces that repeat": '{{ ("{0}" * 10000).format("a" * 10000) }}',
    "joining": '{{ ("a" * 100000).join(["b"] * 10000) }}',
    "joining by filter": '{{ (["b"] * 10000)|join("a" * 100000) }}',
    "batch": '{{ [1]|batch(10**9, "x")|list }}',
    "round": "{{ 1.5|round(10**9, 'floor') }}",
    "a macro": "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    "a tree of macros": "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}",
    "a block kept": "{% set x %}{% for i in range(99999) %}{{ goal }}{% endfor %}{% endset %}",
    "itself": "{% include 'system.jinja' %}",
    "words": "{{ lipsum(n=10**6) }}",
    "brackets": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "many loops": "{% for i in [1] %}" * 200 + "{% endfor %}" * 200,
}


@pytest.mark.parametrize("what", TOO_MUCH)
def test_what_would_not_end_is_one_line(what: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.process_time()
    with pytest.raises(ConfigError, match=r"^prompts/odd") as caught:
        render(TOO_MUCH[what], goal="a" * 1000)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400
    assert time.process_time() - started < 30
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 600 * 1024, "KiB"


CODE = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ cycler.__init__.__globals__.os.system('touch FILE') }}",
    "{{ self.__init__.__globals__ }}",
    "{{ goal.__class__ }}",
    "{{ namespace.__init__.__globals__['__builtins__'].open('FILE', 'w') }}",
    "{{ ''['__class__'] }}",
    "{{ ''|attr('__class__') }}",
    "{{ '{0.__class__.__mro__}'.format('') }}",
    "{{ '{a.__init__}'.format_map({'a': cycler}) }}",
    "{% for x in ().__class__.__base__.__subclasses__() %}{% endfor %}",
    "{{ things.append(1) }}",
    "{{ told.update({'a': 1}) }}",
    "{{ told.clear() }}",
]


@pytest.mark.parametrize("text", CODE)
def test_no_template_reaches_python_or_changes_what_it_is_given(tmp_path: Path, text: str) -> None:
    things, told = [0], {"b": 1}
    with pytest.raises(ConfigError):
        render(text.replace("FILE", str(tmp_path / "made")), goal="x", things=things, told=told)
    assert not (tmp_path / "made").exists()
    assert (things, told) == ([0], {"b": 1})


USUAL = {
    "{{ goal ~ 1 ~ [2] }}": "Go.1[2]",
    "{% for i in range(3) %}{{ loop.index }}{{ ', ' if not loop.last }}{% endfor %}": "1, 2, 3",
    "{% macro f(x) %}<{{ x }}>{% endmacro %}{{ f(goal) }}": "<Go.>",
    "{% set n = namespace(x=0) %}{% for i in [1, 2] %}{% set n.x = n.x + i %}{% endfor %}{{ n.x * 2 }}": "6",
    "{{ '%s: %5.1f' % (goal, 2) }}{{ '{:>4}{}'.format(1, goal) }}": "Go.:   2.0   1Go.",
    "{{ ['a', 'b']|join(', ') }}{{ ', '.join(['a', 'b']) }}": "a, ba, b",
    "{{ ['a', 'b']|map('upper')|join }}{{ goal|replace('o', 'oo') }}{{ goal.replace('G', 'N') }}": "ABGoo.No.",
    "{{ 'a\\nb'|indent(2) }}{{ 'x'|center(3) }}": "a\n  b x ",
    "{% call(x) f() %}{{ x }}{% endcall %}{% macro f() %}[{{ caller(1) }}]{% endmacro %}": None,
    "{{ told['b'] }}{{ told.get('c', 3) }}{% for k, v in told.items() %}{{ k }}{{ v }}{% endfor %}": "13b1",
    "{{ {'a': 1}|tojson }}{{ 2**10 }}{{ 7 % 3 }}": '{"a": 1}10241',
}


@pytest.mark.parametrize("text", USUAL)
def test_what_templates_usually_do_gives_what_jinja_gives(text: str) -> None:
    plain = ImmutableSandboxedEnvironment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    values = {"goal": "Go.", "told": {"b": 1}}
    try:
        expected = plain.from_string(text).render(**values)
    except jinja2.UndefinedError:
        with pytest.raises(ConfigError):
            render(text, **values)
        return
    assert render(text, **values) == expected == (USUAL[text] or expected)


def test_inheritance_works() -> None:
    texts = {
        "a.jinja": "<{% block x %}a{% endblock %}>",
        "b.jinja": "{% extends 'a.jinja' %}{% block x %}b{% endblock %}",
    }
    environment = Sandbox(loader=jinja2.DictLoader(texts))
    assert filled(environment.get_template("b.jinja")) == "<b>"


def test_long_screens_are_no_trouble() -> None:
    screen = 'button "ok" [0]\n' * 20_000
    assert (
        render("{{ goal }}\n{{ screen|replace('ok', 'fine')|indent(2) }}", goal="Go.", screen=screen).count("fine") > 1
    )


def test_every_built_in_prompt_can_be_read() -> None:
    for folder in (find_builtin_root() / "prompts").iterdir():
        texts = {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.jinja")}
        Templates(folder.name, texts, texts)
