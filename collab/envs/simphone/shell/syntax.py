"""The grammar of the phone's shell: text in, a tree of commands out. Nothing is run or expanded here.

The part of mksh that people type through adb: quoting, `;` `&&` `||` `|` `!`, redirections, `if`, `for`, `while`,
groups, variables and command substitution. No here-documents, functions, `case` or arithmetic.

The words of a command line: quoting, operators and what is to be expanded. Nothing is expanded here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, TypeAlias

_OPERATORS = ("&&", "||", ";;", ";", "|", "&", "(", ")", "\n")
_REDIRECT = re.compile(r"(\d?)(>>|>&|>|<)|(&>)")
NAME = re.compile(r"[A-Za-z_]\w*|[?$#@*!0-9]")
"""A variable."""
_END_OF_WORD = " \t\r\n;|&()<>"


class SyntaxProblem(Exception):
    """The text is no command; the message is what mksh says after "syntax error:"."""


@dataclass(frozen=True, slots=True)
class WordPiece:
    """A part of a word."""

    kind: Literal["text", "variable", "command"]
    value: str
    quoted: bool
    """Quoted text is neither split nor globbed."""


ShellWord: TypeAlias = tuple[WordPiece, ...]


@dataclass(frozen=True, slots=True)
class Token:
    """An operator, a redirection sign, a word, or the end."""

    kind: Literal["word", "operator", "redirect", "end"]
    text: str = ""
    word: ShellWord = ()


def tokenize(text: str) -> list[Token]:
    """Cut a command line into tokens; SyntaxProblem when a quote or a bracket does not close."""
    found: list[Token] = []
    place = 0
    while place < len(text):
        letter = text[place]
        # A backslash before a line break joins the lines.
        if letter in " \t\r" or text.startswith("\\\n", place):
            place += 2 if letter == "\\" else 1
        elif letter == "#":
            end = text.find("\n", place)
            place = len(text) if end < 0 else end
        # A number before an arrow belongs to it, as in 2>file.
        elif (match := _REDIRECT.match(text, place)) and (letter in "<>&" or text[place : place + 1].isdigit()):
            found.append(Token("redirect", match.group()))
            place = match.end()
        elif operator := next((one for one in _OPERATORS if text.startswith(one, place)), None):
            found.append(Token("operator", operator))
            place += len(operator)
        else:
            end, word = _read_word(text, place)
            found.append(Token("word", text[place:end], word))
            place = end
    return [*found, Token("end")]


def _read_word(text: str, place: int) -> tuple[int, ShellWord]:
    """Read one word; returns where it ends."""
    pieces: list[WordPiece] = []
    # A word is made of pieces that touch: a'b'$c is one word with three kinds of quoting.
    while place < len(text) and text[place] not in _END_OF_WORD:
        letter = text[place]
        # Single quotes: nothing in them means anything.
        if letter == "'":
            end = text.find("'", place + 1)
            if end < 0:
                raise SyntaxProblem("no closing quote")
            pieces.append(WordPiece("text", text[place + 1 : end], True))
            place = end + 1
        elif letter == '"':
            place = _double_quoted(text, place + 1, pieces)
        elif letter == "\\":
            # A backslash makes the next letter plain, and a quoted one.
            pieces.append(WordPiece("text", text[place + 1 : place + 2], True))
            place += 2
        elif letter in "$`":
            place = _read_expansion(text, place, pieces, quoted=False)
        else:
            # Plain text up to whatever could begin another piece.
            end = place
            while end < len(text) and text[end] not in _END_OF_WORD and text[end] not in "'\"\\$`":
                end += 1
            pieces.append(WordPiece("text", text[place:end], False))
            place = end
    return place, tuple(pieces)


def _double_quoted(text: str, place: int, pieces: list[WordPiece]) -> int:
    pieces.append(WordPiece("text", "", True))  # "" is a word too
    while place < len(text):
        letter = text[place]
        if letter == '"':
            return place + 1
        if letter == "\\" and text[place + 1 : place + 2] in tuple('"\\$`\n'):
            pieces.append(WordPiece("text", text[place + 1].replace("\n", ""), True))
            place += 2
        elif letter in "$`":
            place = _read_expansion(text, place, pieces, quoted=True)
        else:
            end = place + 1
            while end < len(text) and text[end] not in '"\\$`':
                end += 1
            pieces.append(WordPiece("text", text[place:end], True))
            place = end
    raise SyntaxProblem("no closing quote")


def _read_expansion(text: str, place: int, pieces: list[WordPiece], *, quoted: bool) -> int:
    """Read what begins with a dollar sign or a backquote."""
    # Backquotes do not nest; `$(` does, and needs its closing bracket looked for.
    if text[place] == "`":
        end = text.find("`", place + 1)
        if end < 0:
            raise SyntaxProblem("no closing quote")
        pieces.append(WordPiece("command", text[place + 1 : end], quoted))
        return end + 1
    if text.startswith("$(", place):
        end = _find_closing(text, place + 2)
        pieces.append(WordPiece("command", text[place + 2 : end], quoted))
        return end + 1
    # Only ${name}: other forms are refused rather than expanded wrongly.
    if text.startswith("${", place):
        end = text.find("}", place)
        if end < 0 or not NAME.fullmatch(text[place + 2 : end]):
            raise SyntaxProblem("bad substitution")
        pieces.append(WordPiece("variable", text[place + 2 : end], quoted))
        return end + 1
    match = NAME.match(text, place + 1)
    # A dollar sign that begins no name is a dollar sign.
    if match is None:
        pieces.append(WordPiece("text", "$", quoted))
        return place + 1
    pieces.append(WordPiece("variable", match.group(), quoted))
    return match.end()


def _find_closing(text: str, place: int) -> int:
    """Return where the parenthesis opened just before `place` closes; quotes hide parentheses."""
    depth, quote = 1, ""
    while place < len(text):
        letter = text[place]
        # A backslash hides the next letter, except inside single quotes.
        if letter == "\\" and quote != "'":
            place += 1
        elif quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        else:
            depth += (letter == "(") - (letter == ")")
            if depth == 0:
                return place
        place += 1
    raise SyntaxProblem("'(' unmatched")


MAX_DEPTH = 40
"""Nested groups and substitutions; deeper ones are a syntax error."""

_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=")
_RESERVED = frozenset({"if", "then", "elif", "else", "fi", "for", "while", "until", "do", "done", "{", "}", "!"})


@dataclass(frozen=True, slots=True)
class Redirect:
    """Redirection of a stream: "2>" + word; "&>" sends both."""

    stream: str
    operator: str
    target: ShellWord


@dataclass(frozen=True, slots=True)
class Simple:
    """A command with its arguments."""

    assignments: tuple[tuple[str, ShellWord], ...]
    words: tuple[ShellWord, ...]
    redirects: tuple[Redirect, ...]


@dataclass(frozen=True, slots=True)
class If:
    """(condition, body) pairs and what else."""

    branches: tuple[tuple[Sequence, Sequence], ...]
    otherwise: Sequence | None
    redirects: tuple[Redirect, ...]


@dataclass(frozen=True, slots=True)
class Loop:
    """`for` over words, or `while` / `until` a condition."""

    kind: Literal["for", "while", "until"]
    variable: str
    words: tuple[ShellWord, ...]
    condition: Sequence | None
    body: Sequence
    redirects: tuple[Redirect, ...]


@dataclass(frozen=True, slots=True)
class CommandGroup:
    """Commands in braces, or in parentheses (whose variables and folder are forgotten afterwards)."""

    body: Sequence
    subshell: bool
    redirects: tuple[Redirect, ...]


CommandNode: TypeAlias = Simple | If | Loop | CommandGroup


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Commands joined by `|`."""

    commands: tuple[CommandNode, ...]
    negated: bool


@dataclass(frozen=True, slots=True)
class Sequence:
    """Pipelines, each with the operator before it: "" for the first and after `;`, "&&" or "||"."""

    parts: tuple[tuple[str, Pipeline], ...]


def parse(text: str) -> Sequence:
    """Read a command line.

    Raises:
        SyntaxProblem: it is none.
    """
    parser = _Parser(tokenize(text))
    found = parser.parse_sequence(())
    if parser.now.kind != "end":
        raise SyntaxProblem(f"'{parser.now.text or 'word'}' unexpected")
    return found


# --------------------------------------------------------------------------------------------------------- parser


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._place = 0
        self._depth = 0

    @property
    def now(self) -> Token:
        return self._tokens[self._place]

    def _take_next(self) -> Token:
        token = self.now
        self._place += 1
        return token

    def _is_next(self, *texts: str) -> bool:
        """Return whether an operator or a reserved word comes now."""
        token = self.now
        plain = len(token.word) == 1 and token.word[0].kind == "text" and not token.word[0].quoted
        return token.text in texts and (token.kind == "operator" or (token.kind == "word" and plain))

    def _expect(self, text: str, opened: str) -> None:
        if not self._is_next(text):
            raise SyntaxProblem(f"'{opened}' unmatched")
        self._take_next()

    def parse_sequence(self, ends: tuple[str, ...]) -> Sequence:
        """Read pipelines up to one of the reserved words in `ends`."""
        # Bounded: nesting is recursion here, and scripts come from agents.
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise SyntaxProblem("nested too deeply")
        parts: list[tuple[str, Pipeline]] = []
        operator = ""
        while True:
            # Empty commands between separators mean nothing; after an operator only line breaks may stand.
            while not operator and self._is_next(";", "\n", "&"):
                self._take_next()
            while operator and self._is_next("\n"):
                self._take_next()
            if self.now.kind == "end" or self._is_next(*ends, ")"):
                # An operator needs a command behind it.
                if operator:
                    raise SyntaxProblem(f"'{operator}' unexpected")
                break
            parts.append((operator, self._parse_pipeline()))
            # The operator belongs to the pipeline behind it: it decides whether that is run.
            operator = ""
            if self._is_next("&&", "||"):
                operator = self._take_next().text
            elif not self._is_next(";", "\n", "&"):
                break
        self._depth -= 1
        return Sequence(tuple(parts))

    def _parse_pipeline(self) -> Pipeline:
        negated = False
        while self._is_next("!"):
            self._take_next()
            negated = not negated
        commands = [self._parse_command()]
        while self._is_next("|"):
            self._take_next()
            while self._is_next("\n"):
                self._take_next()
            commands.append(self._parse_command())
        return Pipeline(tuple(commands), negated)

    def _parse_command(self) -> CommandNode:
        if self._is_next("if"):
            return self._parse_if()
        if self._is_next("for"):
            return self._parse_for()
        if self._is_next("while", "until"):
            return self._parse_while()
        if self._is_next("(", "{"):
            # Parentheses run in a subshell, braces do not; both may be redirected as a whole.
            opened = self._take_next().text
            closing = ")" if opened == "(" else "}"
            body = self.parse_sequence((closing,))
            self._expect(closing, opened)
            return CommandGroup(body, opened == "(", self._parse_redirects())
        return self._parse_simple()

    def _parse_if(self) -> If:
        self._take_next()
        branches: list[tuple[Sequence, Sequence]] = []
        otherwise: Sequence | None = None
        while True:
            condition = self.parse_sequence(("then",))
            self._expect("then", "if")
            # Each condition with what follows it, so that `elif` is one branch more.
            branches.append((condition, self.parse_sequence(("elif", "else", "fi"))))
            if not self._is_next("elif"):
                break
            self._take_next()
        if self._is_next("else"):
            self._take_next()
            otherwise = self.parse_sequence(("fi",))
        self._expect("fi", "if")
        return If(tuple(branches), otherwise, self._parse_redirects())

    def _parse_for(self) -> Loop:
        self._take_next()
        name = self._take_next()
        words: list[ShellWord] = []
        if name.kind != "word" or not NAME.fullmatch(name.text):
            raise SyntaxProblem("'for' unmatched")
        # Without "in" a loop would go over the script's arguments, of which there are none.
        if self._is_next("in"):
            self._take_next()
            while self.now.kind == "word":
                words.append(self._take_next().word)
        while self._is_next(";", "\n"):
            self._take_next()
        self._expect("do", "for")
        body = self.parse_sequence(("done",))
        self._expect("done", "do")
        return Loop("for", name.text, tuple(words), None, body, self._parse_redirects())

    def _parse_while(self) -> Loop:
        kind: Literal["while", "until"] = "while" if self._take_next().text == "while" else "until"
        condition = self.parse_sequence(("do",))
        self._expect("do", kind)
        body = self.parse_sequence(("done",))
        self._expect("done", "do")
        return Loop(kind, "", (), condition, body, self._parse_redirects())

    def _parse_redirects(self) -> tuple[Redirect, ...]:
        found: list[Redirect] = []
        while self.now.kind == "redirect":
            found.append(self._parse_redirect())
        return tuple(found)

    def _parse_redirect(self) -> Redirect:
        text = self._take_next().text
        if self.now.kind != "word":
            raise SyntaxProblem(f"'{self.now.text or 'newline'}' unexpected")
        stream = "&" if text == "&>" else text.rstrip("<>&") or ("0" if "<" in text else "1")
        return Redirect(stream, text.lstrip("0123456789&"), self._take_next().word)

    def _parse_simple(self) -> Simple:
        assignments: list[tuple[str, ShellWord]] = []
        words: list[ShellWord] = []
        redirects: list[Redirect] = []
        if self._is_next(*_RESERVED):
            raise SyntaxProblem(f"'{self.now.text}' unexpected")
        while self.now.kind in ("word", "redirect"):
            if self.now.kind == "redirect":
                redirects.append(self._parse_redirect())
                continue
            word = self._take_next().word
            # Assignments stand before the command; behind it they are words.
            match = _ASSIGNMENT.match(word[0].value) if word and not words and not word[0].quoted else None
            if match is not None:
                rest = (WordPiece("text", word[0].value[match.end() :], False), *word[1:])
                assignments.append((match.group(1), rest))
            else:
                words.append(word)
        if not (assignments or words or redirects):
            raise SyntaxProblem(f"'{self.now.text or 'end of input'}' unexpected".replace("\n", "newline"))
        return Simple(tuple(assignments), tuple(words), tuple(redirects))
