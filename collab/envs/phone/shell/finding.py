"""Looking for files: find, and the tests of `[ … ]`."""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Callable

from collab.envs.phone.shell import tree
from collab.envs.phone.shell.arguments import whole
from collab.envs.phone.shell.session import Done, Session


def find(session: Session, args: list[str], stdin: str) -> Done:
    """Find files by name, kind and depth; prints or deletes them."""
    first = next((place for place, arg in enumerate(args) if arg.startswith(("-", "(", "!"))), len(args))
    starts, rules = args[:first] or ["."], args[first:]
    try:
        test, delete = _rules(rules)
    except ValueError as problem:
        return Done(err=f"find: {problem}\n", code=1)
    out: list[str] = []
    err: list[str] = []
    for start in starts:
        base = session.path(start)
        if tree.info(session.phone, base) is None:
            err.append(f"find: {start}: No such file or directory\n")
            continue
        paths = tree.walk(session.phone, base)
        for path in reversed(paths) if delete else paths:
            depth = 0 if path == base else path[len(base.rstrip("/")) :].count("/")
            if not test(path, depth, tree.is_folder(session.phone, path)):
                continue
            if delete:
                session.phone = tree.delete(session.phone, path)
            else:
                shown = start if path == base else start.rstrip("/") + path[len(base.rstrip("/")) :]
                out.append(shown + "\n")
    return Done("".join(out), "".join(err), int(bool(err)))


_Test = Callable[[str, int, bool], bool]


def _rules(rules: list[str]) -> tuple[_Test, bool]:
    """The expression as one test of (path, depth, is folder); -o binds weaker than what stands side by side."""
    alternatives: list[list[_Test]] = [[]]
    limits: list[_Test] = []
    delete, negate = False, False
    waiting = iter(rules)
    for rule in waiting:
        if rule in ("-o", "-or"):
            alternatives.append([])
        elif rule == "-delete":
            delete = True
        elif rule in ("!", "-not"):
            negate = not negate
        elif rule in ("-print", "-a", "-and", "(", ")"):
            continue
        elif rule in ("-mindepth", "-maxdepth"):
            limits.append(_depth_rule(rule, whole(next(waiting, "")) or 0))
        else:
            alternatives[-1].append(_rule(rule, next(waiting, None), negate=negate))
            negate = False

    def test(path: str, depth: int, folder: bool) -> bool:
        if not all(limit(path, depth, folder) for limit in limits):
            return False
        return any(all(one(path, depth, folder) for one in group) for group in alternatives)

    return test, delete


def _depth_rule(rule: str, depth_limit: int) -> _Test:
    if rule == "-mindepth":
        return lambda path, depth, folder: depth >= depth_limit
    return lambda path, depth, folder: depth <= depth_limit


def _rule(rule: str, value: str | None, *, negate: bool) -> _Test:
    if value is None:
        raise ValueError(f"{rule}: missing argument")
    wanted = value
    if rule == "-type" and wanted in ("f", "d"):
        return lambda path, depth, folder: (folder == (wanted == "d")) != negate
    if rule == "-name":
        return lambda path, depth, folder: fnmatch.fnmatchcase(posixpath.basename(path), wanted) != negate
    if rule == "-iname":
        low = wanted.lower()
        return lambda path, depth, folder: fnmatch.fnmatchcase(posixpath.basename(path).lower(), low) != negate
    if rule == "-path":
        return lambda path, depth, folder: fnmatch.fnmatchcase(path, wanted) != negate
    raise ValueError(f"bad arg '{rule}'")


def test(session: Session, args: list[str], stdin: str) -> Done:
    """Compare strings and numbers, look for files."""
    try:
        return Done(code=0 if _holds(session, args) else 1)
    except ValueError as problem:
        return Done(err=f"/system/bin/sh: test: {problem}\n", code=2)


def bracket(session: Session, args: list[str], stdin: str) -> Done:
    """`[ … ]`, the other name of test."""
    if not args or args[-1] not in ("]", "]]"):
        return Done(err="/system/bin/sh: [: missing ]\n", code=2)
    return test(session, args[:-1], stdin)


_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
}


def _holds(session: Session, args: list[str]) -> bool:
    for joint, meaning in (("-o", any), ("-a", all)):
        if joint in args[1:-1]:
            place = args.index(joint, 1)
            return meaning([_holds(session, args[:place]), _holds(session, args[place + 1 :])])
    if args[:1] == ["!"]:
        return not _holds(session, args[1:])
    if len(args) < 2:
        return bool(args and args[0])
    if len(args) == 2:
        return _unary(session, *args)
    if len(args) == 3 and args[1] in ("=", "==", "!="):
        return (args[0] == args[2]) == (args[1] != "!=")
    if len(args) == 3 and args[1] in _NUMBERS:
        first, second = whole(args[0]), whole(args[2])
        if first is None or second is None:
            raise ValueError(f"{args[0] if first is None else args[2]}: bad number")
        return _NUMBERS[args[1]](first, second)
    raise ValueError(f"{args[-1]}: unexpected operator/operand")


def _unary(session: Session, operator: str, value: str) -> bool:
    if operator in ("-z", "-n"):
        return bool(value) == (operator == "-n")
    found = tree.info(session.phone, session.path(value)) if value else None
    if operator in ("-e", "-r", "-w", "-x"):
        return found is not None
    if operator in ("-f", "-d", "-s"):
        return found is not None and (found.size > 0 if operator == "-s" else found.folder == (operator == "-d"))
    raise ValueError(f"{operator}: unexpected operator/operand")
