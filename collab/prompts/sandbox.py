"""A Jinja environment for untrusted templates: they run no code, and end in bounded time and memory.

    environment = Sandbox(undefined=jinja2.StrictUndefined)
    text = render(environment.from_string(source), goal=goal)

Jinja's own sandbox keeps templates away from Python's internals and from changing their arguments. This one also
counts: every loop, macro, filter, call and operator checks the remaining time and room before a text grows.
"""

from __future__ import annotations

import functools
import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.nodes import EvalContext
from jinja2.runtime import Context, StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

LARGEST = 2**22
"""Characters (or eighths of items) of one value."""
_ALL = 2**25
"""The same for all values of one rendering."""
_LEAST = 256
"""Least size of any step of a rendering, so that steps without a result end, too."""
_SECONDS = 5.0
"""Processor time of one rendering."""
_NESTED = 20
"""Loops, conditions and macros within each other; Python takes no more."""
_BITS = 4096
"""Bits of a whole number."""
_WIDEST = 10_000
"""Largest argument of a filter that fills or indents."""
_FILLING = frozenset({"batch", "center", "indent", "round", "slice", "tojson", "urlize", "wordwrap", "xmlattr"})
_CHOPS = re.compile(r"\d+")


WRONG = (
    *(jinja2.TemplateError, ArithmeticError, AssertionError, AttributeError, LookupError, MemoryError, RuntimeError),
    *(SyntaxError, TypeError, ValueError),
)
"""Errors that a template may raise."""


class TemplateLimitExceeded(jinja2.TemplateRuntimeError):
    """A template would take too much time or memory."""


@dataclass(slots=True)
class _Allowance:
    """Remaining time and room of one rendering."""

    size: int = _ALL
    until: float = field(default_factory=lambda: time.thread_time() + _SECONDS)


_allowance: ContextVar[_Allowance | None] = ContextVar("allowance", default=None)


def render(template: jinja2.Template, **values: object) -> str:
    """Render a template of a `Sandbox`.

    Raises:
        TemplateLimitExceeded: it takes more than 5 s of processor time, 131,072 steps, or 32 million characters.
        Exception: any error of the template.
    """
    token = _allowance.set(_Allowance())
    try:
        pieces: list[str] = []
        for piece in template.generate(**values):
            _take(len(piece))
            pieces.append(piece)
        return "".join(pieces)
    finally:
        _allowance.reset(token)


def format_error(error: BaseException) -> str:
    """Format type and message of an error, on one line and not too long."""
    said = " ".join(str(error).split())
    return f"{type(error).__name__}: {said:.200}" if said else type(error).__name__


class Sandbox(ImmutableSandboxedEnvironment):
    """See the head of this file; takes the options of `jinja2.Environment`, except `finalize`."""

    intercepted_binops = frozenset(("+", "-", "*", "/", "//", "**", "%"))

    def __init__(self, **options: Any) -> None:
        super().__init__(finalize=_count_turns, **options)
        self.globals.pop("lipsum")
        self.add_filters(self.filters)

    @classmethod
    def like(cls, other: jinja2.Environment) -> Sandbox:
        """Return a sandbox in which templates of another environment mean the same."""
        made = cls(
            trim_blocks=other.trim_blocks,
            lstrip_blocks=other.lstrip_blocks,
            extensions=[type(extension) for extension in other.extensions.values()],
            undefined=other.undefined,
        )
        made.add_filters(other.filters)
        made.globals.update({name: value for name, value in other.globals.items() if name != "lipsum"})
        return made

    def add_filters(self, filters: Mapping[str, Callable[..., Any]]) -> None:
        """Add filters, each behind a check of its arguments."""
        self.filters.update({name: _guard_filter(name, function) for name, function in dict(filters).items()})

    def count_turn(self, size: int) -> None:
        """Count one turn of a loop, or one call of a macro, that shows `size` characters of the template's own."""
        _take(size)

    def join(self, *parts: object) -> str:
        """Join texts as `~` does."""
        texts = [str(part) for part in parts]
        _take(sum(map(len, texts)))
        return "".join(texts)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute left operator right, if the result is not too large."""
        _check_operation(operator, left, right)
        return _count_turns(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Call a template's function, if the result is not too large."""
        if getattr(__obj, "__func__", None) in _OWN:
            return __obj(*args)
        if args and getattr(__obj, "__name__", "") == "join" and isinstance(getattr(__obj, "__self__", None), str):
            args = (list(args[0]), *args[1:])
        _check_call(__obj, args, kwargs)
        return _count_turns(super().call(__context, __obj, *args, **kwargs))

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Counting().visit(super()._parse(source, name, filename))
        return tree


_OWN = (Sandbox.count_turn, Sandbox.join)


_NESTING = (nodes.For, nodes.If, nodes.Macro, nodes.CallBlock, nodes.FilterBlock, nodes.With, nodes.AssignBlock)


class _Counting(NodeTransformer):
    """Puts a tick at the start of everything that can be repeated, and replaces `~` by a call that counts."""

    def __init__(self) -> None:
        self._depth = 0

    def generic_visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> nodes.Node:
        self._depth += isinstance(node, _NESTING)
        if self._depth > _NESTED:
            raise jinja2.TemplateSyntaxError(f"more than {_NESTED} levels of loops and conditions", node.lineno)
        super().generic_visit(node, *args, **kwargs)
        self._depth -= isinstance(node, _NESTING)
        if isinstance(node, nodes.For | nodes.Macro | nodes.CallBlock | nodes.Block | nodes.Template):
            shown = sum(len(text.data) for text in node.find_all(nodes.TemplateData))
            tick = nodes.ExprStmt(_make_call("count_turn", [nodes.Const(shown)], node.lineno), lineno=node.lineno)
            first = 0
            if isinstance(node, nodes.Template):  # what stands before `extends` is left where it is
                first = next((at + 1 for at, one in enumerate(node.body) if isinstance(one, nodes.Extends)), 0)
            node.body.insert(first, tick)
        if isinstance(node, nodes.Concat):
            return _make_call("join", node.nodes, node.lineno)
        return node


def _make_call(name: str, arguments: list[nodes.Expr], line: int) -> nodes.Call:
    own = nodes.EnvironmentAttribute(name, lineno=line)
    return nodes.Call(own, arguments, [], None, None, lineno=line)


# ---------------------------------------------------------------------------------------------------- what is counted


def _take(size: int) -> None:
    left = _allowance.get()
    if size > LARGEST:
        raise TemplateLimitExceeded(f"a text or list of more than {LARGEST:,} characters")
    if left is None:  # while it is compiled
        return
    left.size -= max(size, _LEAST)
    if left.size < 0:
        raise TemplateLimitExceeded(f"more than {_ALL:,} characters, or {_ALL // _LEAST:,} steps")
    if time.thread_time() > left.until:
        raise TemplateLimitExceeded(f"more than {_SECONDS:g} s of work")


def _count_turns(value: Any) -> Any:
    _take(_measure(value))
    return value


def _measure(value: Any) -> int:
    if isinstance(value, str | bytes):
        return len(value)
    return 8 * len(value) if isinstance(value, list | tuple | dict | set) else 1


def _check_operation(operator: str, left: Any, right: Any) -> None:
    """Refuse an operation whose result would be too large, before it is made."""
    if operator == "*":
        for many, times in ((left, right), (right, left)):
            if isinstance(many, str | bytes | list | tuple) and isinstance(times, int):
                _take(_measure(many) * max(times, 0))
    if isinstance(left, int) and isinstance(right, int):
        grown = left.bit_length() * max(right, 1) if operator == "**" else left.bit_length() + right.bit_length()
        if operator in ("*", "**", "+", "-") and grown > _BITS:
            raise TemplateLimitExceeded(f"a number of more than {_BITS} bits")
    if operator == "%" and isinstance(left, str | bytes):
        given = right.values() if isinstance(right, Mapping) else right if isinstance(right, tuple) else (right,)
        _check_format(left if isinstance(left, str) else left.decode("latin-1"), given, "%")


def _check_format(pattern: str, given: Iterable[Any], mark: str) -> None:
    """Refuse a pattern that would widen texts, or repeat long ones many times."""
    given, places = list(given), pattern.count(mark)
    shown = max((len(one) for one in given if isinstance(one, str | bytes)), default=0)
    widest = 0
    if "*" in pattern or "{" in pattern:  # a width may stand among what is shown
        numbers = [number for one in given for number in _find_numbers(one)]
        widest = max(numbers, default=0) if mark == "%" or re.search(r"\{[^{}]*\{", pattern) else 0
    written = sum(int(digits[:12]) for digits in _CHOPS.findall(pattern))
    if places * (shown + widest) + written > LARGEST:
        raise TemplateLimitExceeded(f"a text of more than {LARGEST:,} characters")


def _find_numbers(value: Any) -> list[int]:
    if isinstance(value, int):
        return [abs(value)]
    return [int(digits[:12]) for digits in _CHOPS.findall(value)] if isinstance(value, str) else []


def _check_call(called: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
    """Refuse a method of a plain value whose result would be too large, before it is called."""
    name, owner = getattr(called, "__name__", ""), getattr(getattr(called, "__wrapped__", called), "__self__", None)
    given = [*args, *kwargs.values()]
    if not isinstance(owner, str | bytes | int | float):
        return
    if any(isinstance(one, int) and abs(one) > LARGEST for one in given):
        raise TemplateLimitExceeded(f"a number above {LARGEST:,} given to {name}")
    if isinstance(owner, str | bytes):
        _check_text(name, owner, given)


def _check_text(name: str, owner: Any, given: list[Any]) -> None:
    """Refuse a method of a text, or the filter of the same name."""
    # Only methods whose result can be much larger than their input are charged.
    match name, given:
        case "replace", [old, new, *_] if isinstance(old, type(owner)) and isinstance(new, type(owner)):
            _take(len(owner) + owner.count(old) * len(new))
        case "join", [list(items), *_]:
            _take(sum(len(str(item)) for item in items) + len(owner) * len(items))
        case "translate", [table, *_] if isinstance(table, Mapping):
            _take(len(owner) * max((_measure(one) for one in table.values()), default=1))
        case "expandtabs", [width, *_] if isinstance(width, int):
            _take(len(owner) + owner.count("\t" if isinstance(owner, str) else b"\t") * max(width, 0))
        case "format" | "format_map", _:
            flat = [item for one in given for item in (one.values() if isinstance(one, Mapping) else [one])]
            _check_format(owner if isinstance(owner, str) else "", flat, "{")
        case _:
            pass


def _guard_filter(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the filter behind a check of its arguments."""
    if hasattr(function, "is_checked"):
        return function

    @functools.wraps(function)
    def call_checked(*args: Any, **kwargs: Any) -> Any:
        said = [one for one in args if not isinstance(one, Context | EvalContext | jinja2.Environment)]
        context = list(args[: len(args) - len(said)])
        if name == "join" and said and not isinstance(said[0], list | StrictUndefined):
            said[0] = list(said[0])
        _check_filter(name, said, kwargs)
        return _count_turns(function(*context, *said, **kwargs))

    call_checked.is_checked = True  # type: ignore[attr-defined]
    return call_checked


def _check_filter(name: str, said: list[Any], kwargs: Mapping[str, Any]) -> None:
    value, given = (said[0] if said else ""), [*said[1:], *kwargs.values()]
    # Numbers given to filters are what makes them expensive.
    numbers = [abs(one) for one in given if isinstance(one, int)]
    if name in _FILLING and max(numbers, default=0) > _WIDEST:
        raise TemplateLimitExceeded(f"a number above {_WIDEST:,} given to the filter {name}")
    if name in ("indent", "wordwrap") and isinstance(value, str):
        widths = [*numbers, *(len(one) for one in given if isinstance(one, str))]
        lines = value.count("\n") + 1 if name == "indent" else len(value)
        _take(len(value) + lines * max(widths if name == "indent" else widths[len(numbers) :], default=4))
    elif name == "format" and isinstance(value, str):
        _check_format(value, given, "%")
    elif name == "replace":
        _check_text(name, str(value), [str(one) if isinstance(one, str) else one for one in given])
    elif name == "join" and isinstance(value, list):
        between = next((one for one in given if isinstance(one, str)), "")
        _take(
            sum(len(str(item)) for item in value if not isinstance(item, jinja2.Undefined)) + len(between) * len(value)
        )
