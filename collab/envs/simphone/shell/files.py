"""Commands on files: ls, find, cat, rm, mkdir, cp, mv, test and their kin, with toybox's words.

Looking for files: find, and the tests of `[ … ]`.
"""

from __future__ import annotations

import datetime
import fnmatch
import hashlib
import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

from collab.envs.simphone.shell import tree
from collab.envs.simphone.shell.session import CommandFunction, Output, ShellSession, parse_whole, split_flags
from collab.envs.simphone.state import Phone


def ls(session: ShellSession, args: list[str], stdin: str) -> Output:
    """List files and folders."""
    flags, paths = split_flags(args)
    # A doubled -l is toybox's full listing, which single letters cannot express.
    if any(arg.startswith("-") and not arg.startswith("--") and arg.count("l") > 1 for arg in args):
        flags["full"] = ""
    out: list[str] = []
    err: list[str] = []
    paths = paths or ["."]
    # Files before folders, as toybox prints them.
    shown = sorted(paths, key=lambda path: "d" not in flags and tree.is_folder(session.phone, session.path(path)))
    for path in shown:
        found = tree.find_info(session.phone, session.path(path))
        if found is None:
            err.append(f"ls: {path}: No such file or directory\n")
        elif not found.folder or "d" in flags:
            out.append(_format_entry(found, path, flags))
        else:
            # A heading only where several places are listed.
            if len(paths) > 1 or "R" in flags:
                out.append(f"{'' if not out else chr(10)}{path}:\n")
            out.append(_format_listing(session, found.path, flags))
            if "R" in flags:
                below = [one for one in tree.walk(session.phone, found.path)[1:] if tree.is_folder(session.phone, one)]
                out += [f"\n{one}:\n{_format_listing(session, one, flags)}" for one in below]
    return Output("".join(out), "".join(err), int(bool(err)))


def _format_listing(session: ShellSession, folder: str, flags: dict[str, str]) -> str:
    names = tree.list_names(session.phone, folder)
    if "a" not in flags and "A" not in flags:
        names = [name for name in names if not name.startswith(".")]
    found = [(name, tree.find_info(session.phone, posixpath.join(folder, name))) for name in names]
    # -a shows the two entries that every folder has.
    if "a" in flags:
        itself, above = tree.find_info(session.phone, folder), tree.find_info(session.phone, posixpath.dirname(folder))
        found = [(".", itself), ("..", above), *found]
    if "t" in flags:
        # Newest first; files of the same moment keep their order by name.
        found.sort(key=lambda pair: -(pair[1].changed_ms if pair[1] else 0))
    if "r" in flags:
        found.reverse()
    lines = [_format_entry(info, name, flags) for name, info in found if info is not None]
    total = sum(-(-info.size // 1024) for _, info in found if info is not None)
    return (f"total {total}\n" if "l" in flags else "") + "".join(lines)


def _format_entry(info: tree.Info, name: str, flags: dict[str, str]) -> str:
    mark = "/" if info.folder and ("p" in flags or "F" in flags) else ""
    if "l" not in flags:
        return f"{info.size // 512 + 1} {name}{mark}\n" if "s" in flags else f"{name}{mark}\n"
    time = datetime.datetime.fromtimestamp(info.changed_ms // 1000, tz=datetime.UTC)
    written = f"{time:%Y-%m-%d %H:%M}"
    if "full" in flags:
        written = f"{time:%Y-%m-%d %H:%M:%S}.{info.changed_ms % 1000:03d}000000 +0000"
    kind = "drwxrws---" if info.folder else "-rw-rw----"
    return (
        f"{kind} {1 + info.folder} u0_a158 media_rw {info.size:>{1 if 'full' in flags else 8}} {written} {name}{mark}\n"
    )


def cat(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Write files one after the other."""
    _, paths = split_flags(args)
    out: list[str] = []
    err: list[str] = []
    for path in paths or ["-"]:
        # "-" is what comes through the pipe.
        if path == "-":
            out.append(stdin)
            continue
        try:
            out.append(tree.decode(tree.read_bytes(session.phone, session.path(path))))
        except tree.TreeProblem as problem:
            err.append(f"cat: {path}: {problem}\n")
    return Output("".join(out), "".join(err), int(bool(err)))


def rm(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Remove files, and with -r folders."""
    flags, paths = split_flags(args)
    err: list[str] = []
    for path in paths:
        found = tree.find_info(session.phone, session.path(path))
        # -f is silent about what is not there, and about nothing else.
        if found is None:
            err += [] if "f" in flags else [f"rm: {path}: No such file or directory\n"]
        elif found.folder and not {"r", "R"} & flags.keys():
            err.append(f"rm: {path}: is directory\n")
        else:
            err += _change_files(session, f"rm: {path}", tree.delete, found.path)
    if not paths and "f" not in flags:
        return Output(err="rm: Needs 1 argument\n", code=1)
    return Output(err="".join(err), code=int(bool(err)))


def rmdir(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Remove empty folders."""
    _, paths = split_flags(args)
    err: list[str] = []
    for path in paths:
        place = session.path(path)
        if not tree.is_folder(session.phone, place):
            err.append(f"rmdir: {path}: {'Not a directory' if tree.find_info(session.phone, place) else _MISSING}\n")
        elif tree.list_names(session.phone, place):
            err.append(f"rmdir: {path}: Directory not empty\n")
        else:
            err += _change_files(session, f"rmdir: {path}", tree.delete, place)
    return Output(err="".join(err), code=int(bool(err)))


_MISSING = "No such file or directory"


def _change_files(session: ShellSession, what: str, change: Callable[[Phone, str], Phone], path: str) -> list[str]:
    """Change the session's phone at a path; what went wrong as one line."""
    try:
        session.phone = change(session.phone, path)
    except tree.TreeProblem as problem:
        return [f"{what}: {problem}\n"]
    return []


def _create_empty(phone: Phone, path: str) -> Phone:
    return tree.write_bytes(phone, path, b"")


def mkdir(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Create folders."""
    flags, paths = split_flags(args, "m")
    err: list[str] = []
    for path in paths:
        place = session.path(path)
        if "p" not in flags and tree.find_info(session.phone, place) is not None:
            err.append(f"mkdir: '{path}': File exists\n")
        elif "p" not in flags and not tree.is_folder(session.phone, posixpath.dirname(place)):
            err.append(f"mkdir: '{path}': {_MISSING}\n")
        else:
            err += _change_files(session, f"mkdir: '{path}'", tree.make_folder, place)
    return Output(err="".join(err), code=int(bool(err)))


def touch(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Create empty files, or set the time of change to now."""
    _, paths = split_flags(args, "dtr")
    err: list[str] = []
    for path in paths:
        place = session.path(path)
        entry = session.phone.files.get(place)
        if entry is not None:
            files = {**session.phone.files, place: replace(entry, changed_ms=session.phone.now_ms)}
            session.phone = replace(session.phone, files=files)
        elif tree.find_info(session.phone, place) is None:
            err += _change_files(session, f"touch: '{path}'", _create_empty, place)
    return Output(err="".join(err), code=int(bool(err)))


def cp(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Copy files, and with -r or -a folders; `cp -a from/. to/` copies what is in a folder."""
    return _transfer(session, args, "cp")


def mv(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Move or rename files and folders."""
    return _transfer(session, args, "mv")


def _transfer(session: ShellSession, args: list[str], verb: str) -> Output:
    flags, paths = split_flags(args)
    # Both verbs share everything but what becomes of the source.
    if len(paths) < 2:
        return Output(err=f"{verb}: Needs 2 arguments\n", code=1)
    *sources, target = paths
    goal = session.path(target)
    # Into a folder, or onto a name: decided once, before anything is moved.
    into = tree.is_folder(session.phone, goal)
    if len(sources) > 1 and not into:
        return Output(err=f"{verb}: '{target}' not directory\n", code=1)
    err: list[str] = []
    # One bad source stops no other; the exit code shows it.
    for source in sources:
        start = session.path(source)
        found = tree.find_info(session.phone, start)
        # "folder/." means its contents, not the folder.
        inside = source.endswith("/.")
        place = posixpath.join(goal, posixpath.basename(start)) if into and not inside else goal
        if found is None:
            err.append(f"{verb}: bad '{source}': {_MISSING}\n")
        elif found.folder and verb == "cp" and not {"r", "R", "a"} & flags.keys():
            err.append(f"cp: Skipped dir '{source}'\n")
        elif place == start or place.startswith(start + "/"):
            # A folder copied into itself would grow for ever.
            err.append(f"{verb}: '{source}' is '{target}'\n")
        else:
            change = partial(_copy_tree, start=start, keep=verb == "cp")
            err += _change_files(session, f"{verb}: '{target}'", change, place)
    return Output(err="".join(err), code=int(bool(err)))


def _copy_tree(phone: Phone, place: str, *, start: str, keep: bool) -> Phone:
    """Copy what lies at `start` to `place`; unless `keep`, take it away there."""
    for path in tree.walk(phone, start):
        goal = place + path[len(start) :]
        if tree.is_folder(phone, path):
            phone = tree.make_folder(phone, goal)
            continue
        entry = phone.files.get(path)
        phone = tree.write_bytes(phone, goal, tree.read_bytes(phone, path))
        if not keep and entry is not None and goal in phone.files:
            phone = replace(phone, files={**phone.files, goal: entry})
    return phone if keep else tree.delete(phone, start)


def chmod(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Change permissions: there is one user, so this only checks that the files are there."""
    _, operands = split_flags([arg for arg in args if not arg.startswith(("-x", "-w", "-r"))])
    missing = [path for path in operands[1:] if tree.find_info(session.phone, session.path(path)) is None]
    err = "".join(f"chmod: {path}: {_MISSING}\n" for path in missing)
    return Output(err=err, code=int(bool(missing)))


def restorecon(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Restore security labels, of which there are none."""
    return Output()


def stat(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Say what is known of files; -c understands %n %s %Y %F."""
    flags, paths = split_flags(args, "c")
    out: list[str] = []
    err: list[str] = []
    for path in paths:
        found = tree.find_info(session.phone, session.path(path))
        if found is None:
            err.append(f"stat: '{path}': {_MISSING}\n")
            continue
        kind = "directory" if found.folder else "regular file"
        values = {"%n": path, "%s": str(found.size), "%Y": str(found.changed_ms // 1000), "%F": kind}
        # The usual form, unless -c gives one.
        line = flags.get("c") or "  File: %n\n  Size: %s\t %F\nModify: %Y"
        # In one pass: a path that holds "%s" itself stays as it is.
        out.append("".join(values.get(part, part) for part in re.split("(%[nsYF])", line)) + "\n")
    return Output("".join(out), "".join(err), int(bool(err)))


def make_digest(algorithm: str) -> CommandFunction:
    """Build md5sum, sha1sum or sha256sum."""

    def command(session: ShellSession, args: list[str], stdin: str) -> Output:
        _, paths = split_flags(args)
        out: list[str] = []
        err: list[str] = []
        for path in paths or ["-"]:
            try:
                data = tree.encode(stdin) if path == "-" else tree.read_bytes(session.phone, session.path(path))
                out.append(f"{hashlib.new(algorithm, data, usedforsecurity=False).hexdigest()}  {path}\n")
            except tree.TreeProblem as problem:
                err.append(f"{algorithm}sum: {path}: {problem}\n")
        return Output("".join(out), "".join(err), int(bool(err)))

    return command


def find(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Find files by name, kind and depth; prints or deletes them."""
    # Paths stand before the first rule.
    first = next((place for place, arg in enumerate(args) if arg.startswith(("-", "(", "!"))), len(args))
    starts, rules = args[:first] or ["."], args[first:]
    try:
        # Rules are checked before a file is touched: -delete must not run with half an expression.
        test, delete = _parse_rules(rules)
    except ValueError as problem:
        return Output(err=f"find: {problem}\n", code=1)
    out: list[str] = []
    err: list[str] = []
    for start in starts:
        base = session.path(start)
        if tree.find_info(session.phone, base) is None:
            err.append(f"find: {start}: No such file or directory\n")
            continue
        paths = tree.walk(session.phone, base)
        # Deleting from the deepest up, as folders must be empty first.
        for path in reversed(paths) if delete else paths:
            depth = 0 if path == base else path[len(base.rstrip("/")) :].count("/")
            if not test(path, depth, tree.is_folder(session.phone, path)):
                continue
            if delete:
                session.phone = tree.delete(session.phone, path)
            else:
                # Printed as the start was written, not as the resolved path.
                shown = start if path == base else start.rstrip("/") + path[len(base.rstrip("/")) :]
                out.append(shown + "\n")
    return Output("".join(out), "".join(err), int(bool(err)))


_Test = Callable[[str, int, bool], bool]


def _parse_rules(rules: list[str]) -> tuple[_Test, bool]:
    """Parse the expression into one test of (path, depth, is folder), and whether it deletes."""
    limits: list[_Test] = []
    matches, delete = _parse_alternatives(iter(rules), limits, inside=False)

    def test(path: str, depth: int, folder: bool) -> bool:
        return all(limit(path, depth, folder) for limit in limits) and matches(path, depth, folder)

    return test, delete


def _parse_alternatives(waiting: Iterator[str], limits: list[_Test], *, inside: bool) -> tuple[_Test, bool]:
    """Parse up to the end, or to the closing parenthesis; -o binds weaker than "and". Depth limits are added."""
    # Alternatives (-o) of tests that all must hold; depth limits hold for the whole expression.
    alternatives: list[list[_Test]] = [[]]
    delete, negate = False, False
    for rule in waiting:
        if rule == ")" and inside:
            break
        if rule in ("-o", "-or"):
            alternatives.append([])
        elif rule == "-delete":
            # Deleting is the caller's, which goes from the deepest path up.
            delete = True
        elif rule in ("!", "-not"):
            negate = not negate
        elif rule in ("-print", "-a", "-and"):
            continue
        elif rule in ("-mindepth", "-maxdepth"):
            limits.append(_parse_depth_rule(rule, parse_whole(next(waiting, "")) or 0))
        else:
            # "!" negates the next test, or all between parentheses, and no more.
            if rule == "(":
                test, deletes = _parse_alternatives(waiting, limits, inside=True)
                delete = delete or deletes
            else:
                test = _parse_rule(rule, next(waiting, None))
            alternatives[-1].append(_negate(test) if negate else test)
            negate = False
    else:
        if inside:
            raise ValueError("missing )")
    return lambda path, depth, folder: any(
        all(one(path, depth, folder) for one in all_) for all_ in alternatives
    ), delete


def _negate(test: _Test) -> _Test:
    return lambda path, depth, folder: not test(path, depth, folder)


def _parse_depth_rule(rule: str, depth_limit: int) -> _Test:
    if rule == "-mindepth":
        return lambda path, depth, folder: depth >= depth_limit
    return lambda path, depth, folder: depth <= depth_limit


def _parse_rule(rule: str, value: str | None) -> _Test:
    if value is None:
        raise ValueError(f"{rule}: missing argument")
    wanted = value
    if rule == "-type" and wanted in ("f", "d"):
        return lambda path, depth, folder: folder == (wanted == "d")
    if rule == "-name":
        return lambda path, depth, folder: fnmatch.fnmatchcase(posixpath.basename(path), wanted)
    if rule == "-iname":
        low = wanted.lower()
        return lambda path, depth, folder: fnmatch.fnmatchcase(posixpath.basename(path).lower(), low)
    if rule == "-path":
        return lambda path, depth, folder: fnmatch.fnmatchcase(path, wanted)
    raise ValueError(f"bad arg '{rule}'")


def test(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Compare strings and numbers, look for files."""
    try:
        return Output(code=0 if _holds(session, args) else 1)
    except ValueError as problem:
        return Output(err=f"/system/bin/sh: test: {problem}\n", code=2)


def bracket(session: ShellSession, args: list[str], stdin: str) -> Output:
    """Evaluate `[ … ]`, the other name of test."""
    if not args or args[-1] not in ("]", "]]"):
        return Output(err="/system/bin/sh: [: missing ]\n", code=2)
    return test(session, args[:-1], stdin)


_NUMBERS: dict[str, Callable[[int, int], bool]] = {
    "-eq": lambda a, b: a == b,
    "-ne": lambda a, b: a != b,
    "-lt": lambda a, b: a < b,
    "-le": lambda a, b: a <= b,
    "-gt": lambda a, b: a > b,
    "-ge": lambda a, b: a >= b,
}


def _holds(session: ShellSession, args: list[str]) -> bool:
    # "or" binds weaker than "and", so it is split first.
    for joint, meaning in (("-o", any), ("-a", all)):
        if joint in args[1:-1]:
            place = args.index(joint, 1)
            return meaning([_holds(session, args[:place]), _holds(session, args[place + 1 :])])
    if args[:1] == ["!"]:
        return not _holds(session, args[1:])
    # One word alone is true when it is not empty.
    if len(args) < 2:
        return bool(args and args[0])
    if len(args) == 2:
        return _test_unary(session, *args)
    if len(args) == 3 and args[1] in ("=", "==", "!="):
        return (args[0] == args[2]) == (args[1] != "!=")
    if len(args) == 3 and args[1] in _NUMBERS:
        first, second = parse_whole(args[0]), parse_whole(args[2])
        if first is None or second is None:
            raise ValueError(f"{args[0] if first is None else args[2]}: bad number")
        return _NUMBERS[args[1]](first, second)
    raise ValueError(f"{args[-1]}: unexpected operator/operand")


def _test_unary(session: ShellSession, operator: str, value: str) -> bool:
    if operator in ("-z", "-n"):
        return bool(value) == (operator == "-n")
    found = tree.find_info(session.phone, session.path(value)) if value else None
    if operator in ("-e", "-r", "-w", "-x"):
        return found is not None
    if operator in ("-f", "-d", "-s"):
        return found is not None and (found.size > 0 if operator == "-s" else found.folder == (operator == "-d"))
    raise ValueError(f"{operator}: unexpected operator/operand")
