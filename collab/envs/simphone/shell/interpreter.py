"""Run a command line on a phone: `run(phone, command) → ShellResult`. Pure: the phone given is not changed.

What a command can use and change is its `ShellSession`; a command is a function of the session, its arguments and its
input. Work is bounded: at most `MAX_COMMANDS` commands and `MAX_OUTPUT` characters in a run.
"""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Iterable

from collab.envs.simphone.shell import tree
from collab.envs.simphone.shell.session import SHELL, CommandFunction, Output, ShellResult, ShellSession, Stop
from collab.envs.simphone.shell.syntax import (
    MAX_DEPTH,
    CommandGroup,
    If,
    Loop,
    Pipeline,
    Redirect,
    Sequence,
    ShellWord,
    Simple,
    SyntaxProblem,
    WordPiece,
    parse,
)
from collab.envs.simphone.shell.syntax import CommandNode as Node
from collab.envs.simphone.state import Phone


def execute(phone: Phone, line: str, commands: dict[str, CommandFunction]) -> ShellResult:
    """Run a command line with these commands; never raises for what stands in the line."""
    session = ShellSession(phone)
    runner = _Runner(session, commands)
    try:
        # Encoded and decoded: half characters and zeros cannot stand in a command line.
        parsed = parse(line.encode("utf-8", "replace").decode("utf-8").replace("\0", ""))
        session.status = runner.run_sequence(parsed, "")
    except SyntaxProblem as problem:
        session.status = 1
        session.log.append(("err", f"{SHELL}: syntax error: {problem}\n"))
    # `exit` and the limits end the line; what was done until then stays.
    except Stop as stop:
        session.status = stop.code
        session.log.append(("err", f"{SHELL}: {stop}\n" if str(stop) else ""))
    return ShellResult(
        phone=session.phone,
        stdout="".join(text for stream, text in session.log if stream == "out"),
        stderr="".join(text for stream, text in session.log if stream == "err"),
        exit_code=session.status & 255,
        output="".join(text for _, text in session.log),
    )


class _Runner:
    def __init__(self, session: ShellSession, commands: dict[str, CommandFunction]) -> None:
        self.session = session
        self.commands = commands
        self._depth = 0

    # ---------------------------------------------------------------------------------------------- control flow

    def run_sequence(self, node: Sequence, stdin: str) -> int:
        status = self.session.status
        for operator, pipeline in node.parts:
            if (operator == "&&" and status != 0) or (operator == "||" and status == 0):
                continue
            status = self._run_pipeline(pipeline, stdin)
            self.session.status = status
        return status

    def _run_pipeline(self, node: Pipeline, stdin: str) -> int:
        status = 0
        for command in node.commands[:-1]:
            mark = len(self.session.log)
            self._run_command(command, stdin)
            stdin = self._take(mark)
        status = self._run_command(node.commands[-1], stdin)
        return int(status == 0) if node.negated else status

    def _take(self, mark: int) -> str:
        """Take standard output back out of the log, from `mark` on."""
        new = self.session.log[mark:]
        self.session.log[mark:] = [entry for entry in new if entry[0] == "err"]
        return "".join(text for stream, text in new if stream == "out")

    def _run_command(self, node: Node, stdin: str) -> int:
        # Bounded: loops of agents may never end.
        self.session.budget -= 1
        if self.session.budget < 0:
            raise Stop(137, "too many commands")
        if isinstance(node, Simple):
            return self._run_simple(node, stdin)
        mark = len(self.session.log)
        files = self._open_redirects(node.redirects)
        if isinstance(files, Output):
            return self._write(files, ())
        status = self._run_compound(node, stdin)
        # What the command wrote is taken out of the log and goes where the redirection says.
        if files:
            out = self._take(mark)
            err = "".join(text for _, text in self.session.log[mark:])
            del self.session.log[mark:]
            self._write(Output(out, err, status), files)
        return status

    def _run_compound(self, node: If | Loop | CommandGroup, stdin: str) -> int:
        if isinstance(node, If):
            for condition, body in node.branches:
                if self.run_sequence(condition, stdin) == 0:
                    return self.run_sequence(body, stdin)
            return self.run_sequence(node.otherwise, stdin) if node.otherwise is not None else 0
        if isinstance(node, Loop):
            return self._run_loop(node, stdin)
        if not node.subshell:
            return self.run_sequence(node.body, stdin)
        cwd, variables = self.session.cwd, dict(self.session.variables)
        try:
            return self.run_sequence(node.body, stdin)
        except Stop as stop:
            if str(stop):  # a bound was reached, which ends everything; `exit` only ends the subshell
                raise
            return stop.code
        finally:
            self.session.cwd, self.session.variables = cwd, variables

    def _run_loop(self, node: Loop, stdin: str) -> int:
        status = 0
        if node.kind == "for":
            for value in self._expand_words(node.words):
                self.session.variables[node.variable] = value
                status = self.run_sequence(node.body, stdin)
            return status
        assert node.condition is not None
        while (self.run_sequence(node.condition, stdin) == 0) == (node.kind == "while"):
            status = self.run_sequence(node.body, stdin)
        return status

    # --------------------------------------------------------------------------------------------- one command

    def _run_simple(self, node: Simple, stdin: str) -> int:
        values = {name: self._expand_text(word) for name, word in node.assignments}
        words = self._expand_words(node.words)
        files = self._open_redirects(node.redirects)
        if isinstance(files, Output):
            return self._write(files, ())
        # Assignments without a command set variables; with one they would be its own.
        if not words:
            self.session.variables.update(values)
            return self._write(Output(), files)
        for redirect, path in files:
            if redirect.operator == "<":
                stdin = tree.decode(tree.read_bytes(self.session.phone, path)) if path else ""
        name = words[0].removeprefix("/system/bin/")
        command = self.commands.get(name)
        if command is None:
            return self._write(Output(err=f"{SHELL}: {words[0]}: inaccessible or not found\n", code=127), files)
        try:
            done = command(self.session, words[1:], stdin)
        except tree.TreeProblem as problem:
            done = Output(err=f"{name}: {problem}\n", code=1)
        return self._write(done, files)

    def _open_redirects(self, redirects: Iterable[Redirect]) -> list[tuple[Redirect, str]] | Output:
        """Open the redirections, with their paths; an Output says why a file cannot be opened."""
        files: list[tuple[Redirect, str]] = []
        for redirect in redirects:
            target = self._expand_text(redirect.target)
            if redirect.operator == ">&" or target == "/dev/null":
                files.append((redirect, target if redirect.operator == ">&" else ""))
                continue
            path = self.session.path(target)
            try:
                # Files are opened before the command runs, so that a failed redirection runs nothing.
                if redirect.operator == "<":
                    tree.read_bytes(self.session.phone, path)
                else:
                    before = b"" if redirect.operator == ">" else self._read_existing(path)
                    self.session.phone = tree.write_bytes(self.session.phone, path, before)
            except tree.TreeProblem as problem:
                verb = "open" if redirect.operator == "<" else "create"
                return Output(err=f"{SHELL}: can't {verb} {target}: {problem}\n", code=1)
            files.append((redirect, path))
        return files

    def _read_existing(self, path: str) -> bytes:
        found = tree.find_info(self.session.phone, path)
        return b"" if found is None else tree.read_bytes(self.session.phone, path)

    def _write(self, done: Output, files: Iterable[tuple[Redirect, str]]) -> int:
        """Send what was written to where the redirections say."""
        to: dict[str, str | None] = {"1": "out", "2": "err"}
        for redirect, path in files:
            if redirect.operator == "<":
                continue
            if redirect.operator == ">&":
                # "2>&1" copies where the other stream goes now, so the order of redirections matters.
                to[redirect.stream] = to.get(path, "out")
                continue
            for stream in ("1", "2") if redirect.stream == "&" else (redirect.stream,):
                to[stream] = path or None
        self._send(done.out, to["1"])
        self._send(done.err, to["2"])
        return done.code

    def _send(self, text: str, to: str | None) -> None:
        if not text or to is None:
            return
        if to in ("out", "err"):
            # Bounded: a loop can print for ever.
            self.session.room -= len(text)
            if self.session.room < 0:
                raise Stop(137, "too much output")
            self.session.log.append(("out" if to == "out" else "err", text))
            return
        data = self._read_existing(to) + tree.encode(text)
        try:
            self.session.phone = tree.write_bytes(self.session.phone, to, data)
        except tree.TreeProblem as problem:
            self.session.log.append(("err", f"{SHELL}: {to}: {problem}\n"))

    # ------------------------------------------------------------------------------------------------ expansion

    def _expand_value(self, piece: WordPiece) -> str:
        if piece.kind == "text":
            return piece.value
        if piece.kind == "variable":
            special = {"?": str(self.session.status), "$": "4242", "#": "0", "0": "sh", "PWD": self.session.cwd}
            # The few special variables that scripts use; anything else is empty.
            return special.get(piece.value) or self.session.variables.get(piece.value, "")
        mark = len(self.session.log)
        self._depth += 1
        # Substitutions nest, and so does this function.
        if self._depth > MAX_DEPTH:
            raise SyntaxProblem("nested too deeply")
        self.session.status = self.run_sequence(parse(piece.value), "")
        self._depth -= 1
        return self._take(mark).rstrip("\n")

    def _expand_text(self, word: ShellWord) -> str:
        """Return a word as one string."""
        text = "".join(self._expand_value(piece) for piece in word)
        return _find_home(text) if word and not word[0].quoted else text

    def _expand_words(self, words: Iterable[ShellWord]) -> list[str]:
        """Return words as arguments: variables split at spaces, patterns replaced by the paths they match."""
        return [argument for word in words for argument in self._split_word(word)]

    def _split_word(self, word: ShellWord) -> list[str]:
        if all(piece.kind == "text" and (piece.quoted or not set(piece.value) & set("*?[")) for piece in word):
            return [self._expand_text(word)]
        fields: list[tuple[str, str]] = []
        started = False
        for piece in word:
            value = self._expand_value(piece)
            whole = piece.quoted or piece.kind == "text"
            parts = [value] if whole else value.split()
            started = started or piece.quoted or bool(parts and value)
            for position, part in enumerate(parts):
                pattern = _escape_pattern(part) if piece.quoted else part
                # Pieces that touch belong to one word; a blank from a variable begins a new one.
                if fields and position == 0 and (whole or not value[:1].isspace()):
                    fields[-1] = (fields[-1][0] + part, fields[-1][1] + pattern)
                else:
                    fields.append((part, pattern))
        return [path for text, pattern in fields for path in self._expand_pattern(text, pattern)] if started else []

    def _expand_pattern(self, text: str, pattern: str) -> list[str]:
        if not set(text) & set("*?[") or pattern == _escape_pattern(text):
            return [text]
        found = ["/" if pattern.startswith("/") else self.session.cwd]
        for part in pattern.strip("/").split("/"):
            found = [posixpath.join(base, name) for base in found for name in self._list_matching(base, part)]
        found = [path for path in found if tree.find_info(self.session.phone, tree.normalise(path)) is not None]
        start = len(self.session.cwd.rstrip("/")) + 1
        return [path if pattern.startswith("/") else path[start:] for path in found] or [text]

    def _list_matching(self, folder: str, pattern: str) -> list[str]:
        if not set(pattern) & set("*?["):
            return [pattern]
        names = tree.list_names(self.session.phone, tree.normalise(folder))
        return [
            name
            for name in names
            if fnmatch.fnmatchcase(name, pattern) and (not name.startswith(".") or pattern.startswith("."))
        ]


def _find_home(text: str) -> str:
    return "/" + text[2:] if text == "~" or text.startswith("~/") else text


def _escape_pattern(text: str) -> str:
    """Return a pattern that matches only this text."""
    return "".join(f"[{letter}]" if letter in "*?[" else letter for letter in text)
