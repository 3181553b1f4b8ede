"""Read a server's answer within bounds: bytes → JSON → schema, or the error that came in its place.

    client = openai.AsyncOpenAI(…, http_client=BoundedClient())
    completion = read_answer(await client.post(path, cast_to=httpx2.Response, body=body), Completion)

A decompressed answer takes at most `LARGEST` bytes, an error's body at most `LARGEST_ERROR`. Answers are read as JSON
whatever their content type. A lone surrogate in JSON (half a character) becomes U+FFFD.
"""

from __future__ import annotations

import html
import json
import re
from typing import Any, TypeVar

import httpx2
import openai
from pydantic import BaseModel, ValidationError

AnswerModel = TypeVar("AnswerModel", bound=BaseModel)

LARGEST = 2**24
"""Bytes of an answer: a long prompt's token ids with their log-probabilities are about 13 MB."""
LARGEST_ERROR = 2**16
"""Bytes of an error's body; the rest is not read."""
_REDIRECTS = 5
_BOUNDED = {"", "identity", "gzip", "x-gzip", "deflate"}
"""Codings of a body that unfold at most a thousandfold."""
_CODING = (b"content-encoding", b"content-length", b"transfer-encoding")
"""Headers that are true of the bytes on the wire only."""
_HALF = re.compile(r"\\u[dD][89a-fA-F]")
"""May be half a character; most answers have none."""
_SURROGATE = re.compile("[\ud800-\udfff]")
_TAG = re.compile(r"<(script|style)\b.*?</\1\s*>|<[^>]*>", re.DOTALL | re.IGNORECASE)
_READ_OF_A_PAGE = 8192
"""Characters of an error page that are searched for words."""
_WORDS = ("message", "detail", "error_description", "error", "errors", "msg", "reason", "title")
"""Fields in which servers describe an error, most informative first."""
_MOST_DIGITS = 400
"""Digits of a number that are read; Python reads no more than 4300, and fails beyond."""
_DEEPEST = 4
"""Levels of a body that are searched for words."""


class TooLong(Exception):
    """An answer has more bytes than are read."""


class Broken(Exception):
    """An answer is not what was asked for."""


class ErrorInAnswer(Exception):
    """An answer with status 200 holds an error.

    Args:
        status: the HTTP status that it reports; 502 without one.
        words: the error's text.
        response: the whole answer.
    """

    def __init__(self, status: int, words: str, response: httpx2.Response) -> None:
        super().__init__(words)
        self.status, self.words, self.response = status, words, response


class BoundedClient(openai.DefaultAsyncHttpxClient):
    """An HTTP client that reads every answer whole, within bounds.

    Redirects are followed, and their bodies are not read. One that would turn the request into another (a POST into a
    GET) or that has no end is returned as it is.
    """

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request and read its answer; raises TooLong and what httpx2 raises."""
        options |= {"stream": True, "follow_redirects": False}
        request.headers["Accept-Encoding"] = "gzip, deflate"  # whatever else is installed, see `_BOUNDED`
        # Redirects are followed only with the same method: a POST that turns into a GET would lose its body.
        for followed in range(_REDIRECTS + 1):
            response = await super().send(request, **options)
            onward = response.next_request
            if onward is None or onward.method != request.method or followed == _REDIRECTS:
                break
            await response.aclose()
            request = onward
        # Read with a bound: a server may send for ever.
        try:
            content = await _read_bounded(response)
        finally:
            await response.aclose()
        # The body is decoded here, so headers that describe its coding would be wrong for the answer returned.
        headers = [(name, value) for name, value in response.headers.raw if name.lower() not in _CODING]
        return httpx2.Response(response.status_code, headers=headers, content=content, request=response.request)


async def _read_bounded(response: httpx2.Response) -> bytes:
    """Read a body, decompressed; an error's body only up to `LARGEST_ERROR` bytes."""
    codings = [one.strip().lower() for one in response.headers.get("content-encoding", "").split(",")]
    # Others, or one within another, unfold a single piece into more than fits into memory.
    if not _BOUNDED.issuperset(codings) or len([one for one in codings if one not in ("", "identity")]) > 1:
        raise TooLong(f"it is compressed as {', '.join(codings)[:80]}; read are gzip and deflate, once")
    content = bytearray()
    async for piece in response.aiter_bytes():
        content += piece
        if response.is_error and len(content) >= LARGEST_ERROR:
            return bytes(content[:LARGEST_ERROR])
        if len(content) > LARGEST:
            raise TooLong(f"it has more than {LARGEST // 2**20} MiB")
    return bytes(content)


def read_answer(response: httpx2.Response, schema: type[AnswerModel]) -> AnswerModel:
    """Read a JSON document.

    Raises:
        Broken: it is not JSON or does not match the schema.
        ErrorInAnswer: it holds an error instead.
    """
    document = _parse(response)
    # Gateways report errors inside a 200 answer; looked for first, as such an answer may also fit the schema.
    failed = _find_failed_choice(document)
    if failed is not None:
        raise ErrorInAnswer(_read_status(failed), find_words(failed), response)
    try:
        return schema.model_validate(document)
    except ValidationError as error:
        # An error document is more useful than "broken": it says what the server wants.
        words = find_words(document) if isinstance(document, dict) and document.get("error") else ""
        if words:
            raise ErrorInAnswer(_read_status(document), words, response) from None
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "its whole"
        raise Broken(f"not the JSON of a chat-completions server ({place}: {first['msg']})") from None


def read_text(response: httpx2.Response) -> str:
    """Read plain text; raises Broken where it is none."""
    try:
        return response.content.decode("utf-8")
    except UnicodeDecodeError:
        raise Broken("not UTF-8") from None


def quote_error(response: httpx2.Response) -> str:
    """Return the text of an error response: the words in its JSON, the text of its page, or its reason phrase."""
    text = response.content.decode("utf-8", "replace")
    try:
        words = find_words(json.loads(text))
    except (ValueError, RecursionError):
        words = _read_page(text)
    place = response.headers.get("location")
    moved = f"it redirects to {place}; correct base_url" if response.is_redirect and place else ""
    return replace_halves(moved or words or response.reason_phrase)


def _read_page(text: str) -> str:
    """Return the visible text of an HTML page; other text unchanged."""
    return " ".join(html.unescape(_TAG.sub(" ", text[:_READ_OF_A_PAGE])).split())


def find_words(body: Any, depth: int = 0) -> str:
    """Return the message in an error's JSON, from any of the usual fields; empty without one.

    OpenAI: {"error": {"message": …}}, Gemini: [{"error": {"message": …}}], FastAPI: {"detail": [{"msg": …}]}, Ollama
    and TGI: {"error": "…"}.
    """
    if isinstance(body, str):
        return body
    if depth > _DEEPEST:
        return ""
    if isinstance(body, list):
        return "; ".join(filter(None, (find_words(one, depth + 1) for one in body[:3])))
    if not isinstance(body, dict):
        return ""
    found = next(filter(None, (find_words(body.get(name), depth + 1) for name in _WORDS)), "")
    metadata = body.get("metadata")  # OpenRouter: the provider's own error
    raw = find_words(metadata.get("raw"), depth + 1) if isinstance(metadata, dict) else ""
    place = body.get("loc")  # FastAPI: the field that is wrong
    if isinstance(place, list) and place:
        found = f"{'.'.join(str(one) for one in place[:4])}: {found}"
    param = body.get("param")
    named = f" (param: {param})" if isinstance(param, str) and param and param not in found else ""
    return found + named + (f": {raw}" if raw and raw not in found else "")


def replace_halves(text: str) -> str:
    """Join the two halves of a character where they stand side by side, and replace those that stand alone."""
    if not _SURROGATE.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _parse(response: httpx2.Response) -> Any:
    try:
        text = response.content.decode("utf-8-sig")
        document = json.loads(text, parse_int=_read_integer)
        # Halves of a character may come as two escapes, which JSON joins only in pairs.
        return _join_halves(document) if _HALF.search(text) else document
    except UnicodeDecodeError:
        raise Broken("not UTF-8") from None
    except (ValueError, RecursionError):
        text = response.content.decode("utf-8", "replace").strip()
        # A page is what proxies and wrong addresses answer with; its words say which.
        if text.startswith("<") and (words := _read_page(text)):
            raise Broken(f"a page, not JSON; it says: {words[:200]}") from None
        beginning = " ".join(text[:80].split())
        raise Broken(f"no JSON; it begins with {beginning!r}") from None


def _read_integer(digits: str) -> int | float:
    """Return a whole number; infinity for one of more digits than any that means something."""
    return int(digits) if len(digits) <= _MOST_DIGITS else float(digits)


def _join_halves(value: Any) -> Any:
    """Return the JSON without half characters."""
    if isinstance(value, str):
        return replace_halves(value)
    if isinstance(value, list):
        return [_join_halves(one) for one in value]
    if isinstance(value, dict):
        return {replace_halves(name): _join_halves(one) for name, one in value.items()}
    return value


def _find_failed_choice(document: Any) -> dict[str, Any] | None:
    """Return the first choice if it holds an error in place of a text (OpenRouter), else None."""
    choices = document.get("choices") if isinstance(document, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(first, dict) or not find_words(first.get("error")):
        return None
    message = first.get("message")
    return None if isinstance(message, dict) and message.get("content") else first


def _read_status(document: dict[str, Any]) -> int:
    """Return the HTTP status in an error document; 502 without one."""
    error = document.get("error")
    code = error.get("code") if isinstance(error, dict) else document.get("code")
    return code if isinstance(code, int) and 400 <= code < 600 else 502
