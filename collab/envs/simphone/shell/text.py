"""Commands on text: echo, grep, head, tail, sort, wc and their kin.

Regular expressions from outside, without those that could take for ever.
"""

from __future__ import annotations

import base64
import binascii
import posixpath
import re
from collections.abc import Iterator
from math import comb

from collab.envs.simphone.shell import tree
from collab.envs.simphone.shell.session import Output, ShellSession, parse_whole, split_flags

MAX_PATTERN = 500
"""Characters."""
MAX_WORK = 10**9
"""Steps that an expression may need on all texts together at the worst, about a second."""


class PatternProblem(ValueError):
    """The expression is none, too long, repeats something that repeats, or needs too long; the message says which."""


class Expression:
    """A compiled expression that refuses a text on which it could take too long.

    Args:
        pattern: without repeated repetitions.
        choices: how many of its parts can match in several ways; n characters take at most about
            comb(n + choices, choices + 1) steps, because a search begins anywhere and every such part ends anywhere.
    """

    def __init__(self, pattern: re.Pattern[str], choices: int) -> None:
        self._pattern, self._choices = pattern, choices
        self._left = MAX_WORK

    def search(self, text: str) -> re.Match[str] | None:
        """Return the first match anywhere; PatternProblem when it could take too long."""
        self._check_cost(text)
        return self._pattern.search(text)

    def fullmatch(self, text: str) -> re.Match[str] | None:
        """Return the match of the whole text; PatternProblem when it could take too long."""
        self._check_cost(text)
        return self._pattern.fullmatch(text)

    def finditer(self, text: str) -> Iterator[re.Match[str]]:
        """Yield all matches; PatternProblem when it could take too long."""
        self._check_cost(text)
        return self._pattern.finditer(text)

    def _check_cost(self, text: str) -> None:
        self._left -= comb(len(text) + self._choices, self._choices + 1)
        if self._left < 0:
            raise PatternProblem("expression may take too long on so much text")


def compile_pattern(pattern: str, flags: int = 0) -> Expression:
    """Compile a regular expression that runs in polynomial time.

    Raises:
        PatternProblem: refused, or no expression.
    """
    if len(pattern) > MAX_PATTERN:
        raise PatternProblem("expression is too long")
    plain = re.sub(r"\\.|\[\^?\]?[^\]]*\]", "x", pattern, flags=re.DOTALL).replace("(?", "(")
    if _has_nested_repetition(plain):
        raise PatternProblem("expression repeats a group with a choice or repetition in it")
    try:
        return Expression(re.compile(pattern, flags), len(_CHOICE.findall(plain)))
    except (re.error, OverflowError, RecursionError) as problem:
        raise PatternProblem(str(problem)) from None


_CHOICE = re.compile(r"[*+?]|\{\d*,\d*\}|\|(?=[^(]*\))")
"""A repetition of no fixed number, or an alternative within a group."""


def _has_nested_repetition(plain: str) -> bool:
    """Return whether a group that may match in several ways is repeated, as in (a+)+ or (a|aa)*."""
    open_groups: list[bool] = []
    for place, letter in enumerate(plain):
        if letter == "(":
            open_groups.append(False)
        elif letter == ")" and open_groups:
            flexible = open_groups.pop()
            # Such a pattern may take exponential time, so it is refused.
            if flexible and plain[place + 1 : place + 2] in ("*", "+", "{"):
                return True
            if flexible and open_groups:
                open_groups[-1] = True
        elif letter in "*+?{|" and open_groups:
            open_groups[-1] = True
    return False


_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "a": "\a", "0": "\0", "e": "\x1b", '"': '"'}


def echo(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Print the arguments; -n without a line break. Backslashes mean what they mean in mksh unless -E is given."""
    end, escapes = "\n", True
    while args and re.fullmatch(r"-[neE]+", args[0]):
        end = "" if "n" in args[0] else end
        escapes = "E" not in args[0]
        args = args[1:]
    text = " ".join(args)
    return Output((_unescape(text) if escapes else text) + end)


def printf(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Print by a format with %s, %d and %%; the format is used again for arguments that are left."""
    if not args:
        return Output(err="printf: Needs 1 argument\n", code=1)
    form, values = _unescape(args[0]), args[1:]
    out: list[str] = []
    while True:
        used = 0
        for part in re.split(r"(%[sdib%])", form):
            if part == "%%":
                out.append("%")
            elif re.fullmatch(r"%[sdib]", part):
                value = values[used] if used < len(values) else ""
                out.append(str(parse_whole(value) or 0) if part in ("%d", "%i") else value)
                used += 1
            else:
                out.append(part)
        values = values[used:]
        if not values or used == 0:
            return Output("".join(out))


def _unescape(text: str) -> str:
    return re.sub(r"\\([ntra\\0e\"])", lambda match: _ESCAPES[match.group(1)], text)


def grep(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Print lines that match a regular expression."""
    try:
        return _run_grep(session, args, stdin)
    except PatternProblem as problem:
        return Output(err=f"grep: bad REGEX: {problem}\n", code=2)


def _run_grep(session: ShellSession, args: list[str], stdin: str) -> Output:
    flags, rest = split_flags(args, "emABC")
    pattern = flags.get("e") or (rest.pop(0) if rest else "")
    if "F" in flags:
        pattern = re.escape(pattern)
    elif "E" not in flags:  # basic expressions: + ? | { } ( ) are plain unless a backslash stands before them
        pattern = re.sub(r"\\([+?|{}()])|([+?|{}()])", lambda m: m.group(1) or "\\" + m.group(2), pattern)
    wanted = compile_pattern(rf"\b(?:{pattern})\b" if "w" in flags else pattern, re.I if "i" in flags else 0)
    out: list[str] = []
    texts, err = _read_inputs(session, rest, stdin, "grep")
    for path, text in texts:
        lines = text.split("\n")[: -1 if text.endswith("\n") or not text else None]
        hits = [(n, one) for n, one in enumerate(lines, 1) if (wanted.search(one) is None) == ("v" in flags)]
        label = f"{path}:" if len(texts) > 1 and "h" not in flags else ""
        if "c" in flags:
            out.append(f"{label}{len(hits)}\n")
        elif "l" in flags:
            out += [f"{path}\n"] if hits else []
        elif "o" in flags:
            out += [f"{label}{match.group()}\n" for _, one in hits for match in wanted.finditer(one)]
        else:
            out += [f"{label}{f'{n}:' if 'n' in flags else ''}{one}\n" for n, one in hits]
    found = any(out) and out != ["0\n"]
    return Output("" if "q" in flags else "".join(out), err, 0 if found else 2 if err else 1)


def head(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Print the first lines."""
    return _take_part(session, args, stdin, "head")


def tail(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Print the last lines."""
    return _take_part(session, args, stdin, "tail")


def _take_part(session: ShellSession, args: list[str], stdin: str, name: str) -> Output:
    args = [f"-n{arg[1:]}" if re.fullmatch(r"-\d+", arg) else arg for arg in args]
    flags, paths = split_flags(args, "nc")
    count = abs(parse_whole(flags.get("n") or flags.get("c") or "10") or 0)
    texts, err = _read_inputs(session, paths, stdin, name)
    parts: list[str] = []
    for _, text in texts:
        units = list(text) if "c" in flags else text.splitlines(keepends=True)
        parts += units[:count] if name == "head" else units[len(units) - count if count < len(units) else 0 :]
    return Output("".join(parts), err, int(bool(err)))


def wc(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Count lines, words and bytes."""
    flags, paths = split_flags(args)
    texts, err = _read_inputs(session, paths, stdin, "wc")
    out: list[str] = []
    for path, text in texts:
        counts = {"l": text.count("\n"), "w": len(text.split()), "c": len(tree.encode(text))}
        chosen = [str(count) for key, count in counts.items() if key in flags or not flags]
        out.append(" ".join(chosen) + (f" {path}" if path != "-" else "") + "\n")
    return Output("".join(out), err, int(bool(err)))


def sort(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Sort lines."""
    flags, paths = split_flags(args, "kt")
    texts, err = _read_inputs(session, paths, stdin, "sort")
    lines = [line for _, text in texts for line in text.splitlines()]
    lines = sorted(set(lines) if "u" in flags else lines, reverse="r" in flags)
    if "n" in flags:
        numbers = {line: parse_whole(line.split()[0]) or 0 if line.split() else 0 for line in lines}
        lines.sort(key=lambda line: numbers[line], reverse="r" in flags)
    return Output("".join(line + "\n" for line in lines), err, int(bool(err)))


def tr(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Replace or delete letters; only plain sets, no ranges."""
    flags, sets = split_flags(args)
    first = _unescape(sets[0]) if sets else ""
    if "d" in flags:
        return Output("".join(letter for letter in stdin if letter not in first))
    second = _unescape(sets[1]) if len(sets) > 1 else ""
    table = {ord(a): second[min(place, len(second) - 1)] for place, a in enumerate(first)} if second else {}
    return Output(stdin.translate(table))


def base64_command(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Encode, or with -d decode."""
    flags, paths = split_flags(args, "w")
    texts, err = _read_inputs(session, paths, stdin, "base64")
    data = tree.encode("".join(text for _, text in texts))
    if "d" not in flags:
        return Output(base64.encodebytes(data).decode() if data else "", err, int(bool(err)))
    try:
        return Output(tree.decode(base64.b64decode(data)), err, int(bool(err)))
    except binascii.Error:
        return Output(err="base64: bad input\n", code=1)


def basename(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Return the last part of a path."""
    name = posixpath.basename(args[0].rstrip("/")) if args else ""
    return Output((name.removesuffix(args[1]) if len(args) > 1 and name != args[1] else name) + "\n")


def dirname(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Return a path without its last part."""
    return Output((posixpath.dirname(args[0].rstrip("/")) if args else "") + "\n")


def _read_inputs(session: ShellSession, paths: list[str], stdin: str, name: str) -> tuple[list[tuple[str, str]], str]:
    """Return (path, text) of every file that can be read, or the standard input; and what went wrong."""
    texts: list[tuple[str, str]] = []
    err = ""
    for path in paths or ["-"]:
        if path == "-":
            texts.append((path, stdin))
            continue
        try:
            texts.append((path, tree.decode(tree.read_bytes(session.phone, session.path(path)))))
        except tree.TreeProblem as problem:
            err += f"{name}: {path}: {problem}\n"
    return texts, err
