"""The words of a command line: quoting, operators and what is to be expanded. Nothing is expanded here."""

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
class Piece:
    """A part of a word."""

    kind: Literal["text", "variable", "command"]
    value: str
    quoted: bool
    """Quoted text is neither split nor globbed."""


Word: TypeAlias = tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class Token:
    """An operator, a redirection sign, a word, or the end."""

    kind: Literal["word", "operator", "redirect", "end"]
    text: str = ""
    word: Word = ()


def tokens(text: str) -> list[Token]:
    """Cut a command line into tokens; SyntaxProblem when a quote or a bracket does not close."""
    found: list[Token] = []
    place = 0
    while place < len(text):
        letter = text[place]
        if letter in " \t\r" or text.startswith("\\\n", place):
            place += 2 if letter == "\\" else 1
        elif letter == "#":
            end = text.find("\n", place)
            place = len(text) if end < 0 else end
        elif (match := _REDIRECT.match(text, place)) and (letter in "<>&" or text[place : place + 1].isdigit()):
            found.append(Token("redirect", match.group()))
            place = match.end()
        elif operator := next((one for one in _OPERATORS if text.startswith(one, place)), None):
            found.append(Token("operator", operator))
            place += len(operator)
        else:
            end, word = _word(text, place)
            found.append(Token("word", text[place:end], word))
            place = end
    return [*found, Token("end")]


def _word(text: str, place: int) -> tuple[int, Word]:
    """Read one word; returns where it ends."""
    pieces: list[Piece] = []
    while place < len(text) and text[place] not in _END_OF_WORD:
        letter = text[place]
        if letter == "'":
            end = text.find("'", place + 1)
            if end < 0:
                raise SyntaxProblem("no closing quote")
            pieces.append(Piece("text", text[place + 1 : end], True))
            place = end + 1
        elif letter == '"':
            place = _double_quoted(text, place + 1, pieces)
        elif letter == "\\":
            pieces.append(Piece("text", text[place + 1 : place + 2], True))
            place += 2
        elif letter in "$`":
            place = _expansion(text, place, pieces, quoted=False)
        else:
            end = place
            while end < len(text) and text[end] not in _END_OF_WORD and text[end] not in "'\"\\$`":
                end += 1
            pieces.append(Piece("text", text[place:end], False))
            place = end
    return place, tuple(pieces)


def _double_quoted(text: str, place: int, pieces: list[Piece]) -> int:
    pieces.append(Piece("text", "", True))  # "" is a word too
    while place < len(text):
        letter = text[place]
        if letter == '"':
            return place + 1
        if letter == "\\" and text[place + 1 : place + 2] in tuple('"\\$`\n'):
            pieces.append(Piece("text", text[place + 1].replace("\n", ""), True))
            place += 2
        elif letter in "$`":
            place = _expansion(text, place, pieces, quoted=True)
        else:
            end = place + 1
            while end < len(text) and text[end] not in '"\\$`':
                end += 1
            pieces.append(Piece("text", text[place:end], True))
            place = end
    raise SyntaxProblem("no closing quote")


def _expansion(text: str, place: int, pieces: list[Piece], *, quoted: bool) -> int:
    """Read what begins with a dollar sign or a backquote."""
    if text[place] == "`":
        end = text.find("`", place + 1)
        if end < 0:
            raise SyntaxProblem("no closing quote")
        pieces.append(Piece("command", text[place + 1 : end], quoted))
        return end + 1
    if text.startswith("$(", place):
        end = _closing(text, place + 2)
        pieces.append(Piece("command", text[place + 2 : end], quoted))
        return end + 1
    if text.startswith("${", place):
        end = text.find("}", place)
        if end < 0 or not NAME.fullmatch(text[place + 2 : end]):
            raise SyntaxProblem("bad substitution")
        pieces.append(Piece("variable", text[place + 2 : end], quoted))
        return end + 1
    match = NAME.match(text, place + 1)
    if match is None:
        pieces.append(Piece("text", "$", quoted))
        return place + 1
    pieces.append(Piece("variable", match.group(), quoted))
    return match.end()


def _closing(text: str, place: int) -> int:
    """Where the parenthesis opened just before `place` closes; quotes hide parentheses."""
    depth, quote = 1, ""
    while place < len(text):
        letter = text[place]
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
