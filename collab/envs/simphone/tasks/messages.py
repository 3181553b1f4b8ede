"""Messenger tasks: a message that must have gone out within five minutes, with the messenger in front."""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial

from collab.envs.simphone.apps.messages import PACKAGE
from collab.envs.simphone.content.messages import (
    INBOX,
    SENT,
    SMS,
    Conversation,
    add_message,
    find_conversation,
    list_conversations,
    list_sent,
)
from collab.envs.simphone.content.people import add_person, name_of
from collab.envs.simphone.content.pools import ADDRESSES, SENTENCES, draw_name, draw_number, draw_other
from collab.envs.simphone.state import Phone, TableRow
from collab.envs.simphone.tasks import plans
from collab.envs.simphone.tasks.spec import Params, TaskSpec, is_similar, make_phrasings
from collab.envs.simphone.ui.screen import Frame
from collab.types import Action

_ID = PACKAGE + ":id/"
_FIVE_MINUTES_MS = 300_000
_GLITCH = "Something went wrong here, could you send me your last message again?"


# --------------------------------------------------------------------------------------------------------- scoring


def was_sent(phone: Phone, number: str, message: str) -> bool:
    """Return whether a similar message went to exactly this number in the last five minutes."""
    return any(
        _number(row) == number
        and is_similar(str(row["body"]), message)
        and phone.now_ms - int(row["date"] or 0) <= _FIVE_MINUTES_MS
        for row in list_sent(phone)
    )


def _number(message: TableRow) -> str:
    """Return the number of a message as AndroidWorld compares it: without spaces and dashes, and as it is otherwise."""
    return str(message["address"]).replace("-", "").replace(" ", "")


def score(start: Phone, end: Phone, params: Params) -> float:
    """Return whether the message is out and the messenger is in front."""
    return float(was_sent(end, str(params["number"]), str(params["message"])) and end.foreground == PACKAGE)


def _score_resend(start: Phone, end: Phone, params: Params) -> float:
    before, after = list_sent(start), list_sent(end)
    if len(after) != len(before) + 1:
        return 0.0
    first, last = before[0], after[-1]
    return float(_number(last) == _number(first) and is_similar(str(last["body"]), str(first["body"])))


# -------------------------------------------------------------------------------------------------------- planning


def send_plan(frame: Frame, number: str, message: str | None) -> Action:
    """Get to the conversation with a number, write and send; None as message pastes the clipboard."""
    if not plans.is_in_app(frame, PACKAGE):
        return plans.open_app("Simple SMS Messenger")
    if frame.page.screen == "messages.list":
        known = find_conversation(frame.phone, number)
        return plans.aim_at(frame, _ID + (f"conversation/{known.thread}" if known else "conversations_fab"))
    if frame.page.screen == "messages.new":
        step = plans.fill(frame, _ID + "new_conversation_address", number)
        return step or plans.aim_at(frame, _ID + "new_conversation_confirm")
    if frame.page.screen == "messages.conversation" and frame.page.data["address"] == number:
        return _write(frame, message)
    if frame.page.screen == "system.text_menu":
        junk = frame.page.data["text"] and frame.page.data["text"].rstrip("\n") != frame.phone.clipboard
        return plans.aim_at(frame, f"android:id/{'done' if message is not None else 'cut' if junk else 'paste'}")
    return plans.press_back()


def _write(frame: Frame, message: str | None) -> Action:
    key = _ID + "thread_type_message"
    step = plans.paste(frame, key) if message is None else plans.fill(frame, key, message)
    return step or plans.aim_at(frame, _ID + "thread_send_message")


def _send_plan(frame: Frame, params: Params, start: Phone) -> Action:
    number, message = str(params["number"]), str(params["message"])
    if not was_sent(frame.phone, number, message):
        return send_plan(frame, number, message)
    return plans.finish() if plans.is_in_app(frame, PACKAGE) else plans.open_app("Simple SMS Messenger")


def _plan_clipboard(frame: Frame, params: Params, start: Phone) -> Action:
    number, message = str(params["number"]), str(params["message"])
    if was_sent(frame.phone, number, message) or frame.phone.clipboard != message:
        return _send_plan(frame, params, start)
    return send_plan(frame, number, None)


def _plan_address(frame: Frame, params: Params, start: Phone) -> Action:
    """Read first what was received, then send it on."""
    source = _find_conversation(frame.phone, str(params["name2"]))
    if source is not None and source.unread:
        if not plans.is_in_app(frame, PACKAGE):
            return plans.open_app("Simple SMS Messenger")
        if frame.page.screen != "messages.list":
            return plans.press_back()
        return plans.aim_at(frame, f"{_ID}conversation/{source.thread}")
    return _send_plan(frame, params, start)


def _plan_resend(frame: Frame, params: Params, start: Phone) -> Action:
    if len(list_sent(frame.phone)) > len(list_sent(start)):
        return plans.finish()
    return send_plan(frame, str(params["number"]), str(params["message"]))


def _find_conversation(phone: Phone, name: str) -> Conversation | None:
    return next((one for one in list_conversations(phone) if name_of(phone, one.address) == name), None)


# ----------------------------------------------------------------------------------------------------- preparation


def clear_messages(phone: Phone) -> Phone:
    """Return a phone whose message database is empty, as AndroidWorld's set-up leaves it."""
    return replace(phone, rows={key: content for key, content in phone.rows.items() if key[0] != SMS.path})


def _receive_message(phone: Phone, number: str, message: str, seconds_ago: int) -> Phone:
    return add_message(phone, number, message, INBOX, date=phone.now_ms - 1000 * seconds_ago, read=False)


def _prepare_send(phone: Phone, params: Params, rng: random.Random) -> Phone:
    return clear_messages(phone)


def _prepare_reply(phone: Phone, params: Params, rng: random.Random) -> Phone:
    phone = clear_messages(phone)
    others = [draw_number(rng) for _ in range(rng.randint(1, 5))]
    numbers = [*others, str(params["number"])]
    rng.shuffle(numbers)
    for age, number in enumerate(numbers):
        phone = _receive_message(phone, number, rng.choice(SENTENCES), 60 + 20 * age)
    return phone


def _prepare_reply_most_recent(phone: Phone, params: Params, rng: random.Random) -> Phone:
    phone = clear_messages(phone)
    for age in range(rng.randint(0, 5), 0, -1):
        phone = _receive_message(phone, draw_number(rng), draw_other(rng, SENTENCES, params["message"]), 60 + 20 * age)
    return _receive_message(phone, str(params["number"]), draw_other(rng, SENTENCES, params["message"]), 10)


def _prepare_clipboard(phone: Phone, params: Params, rng: random.Random) -> Phone:
    return replace(clear_messages(phone), clipboard=str(params["message"]))


def _prepare_address(phone: Phone, params: Params, rng: random.Random) -> Phone:
    phone = clear_messages(phone)
    other = draw_number(rng)
    for name, number in ((params["name1"], params["number"]), (params["name2"], other)):
        first, _, last = str(name).partition(" ")
        phone, _ = add_person(phone, first, last, str(number))
    return _receive_message(phone, other, str(params["message"]), 10)


def _prepare_resend(phone: Phone, params: Params, rng: random.Random) -> Phone:
    phone = clear_messages(phone)
    first, _, last = str(params["name"]).partition(" ")
    phone, _ = add_person(phone, first, last, str(params["number"]))
    phone = add_message(phone, str(params["number"]), str(params["message"]), SENT, date=phone.now_ms - 60_000)
    return _receive_message(phone, str(params["number"]), _GLITCH, 30)


# ----------------------------------------------------------------------------------------------------------- tasks


def _draw(rng: random.Random) -> dict[str, str]:
    return {"number": draw_number(rng), "message": rng.choice(SENTENCES)}


def _draw_address(rng: random.Random) -> dict[str, str]:
    name = draw_name(rng)
    other = draw_name(rng)
    while other == name:
        other = draw_name(rng)
    return {"name1": name, "number": draw_number(rng), "name2": other, "message": rng.choice(ADDRESSES)}


def _draw_resend(rng: random.Random) -> dict[str, str]:
    return {"name": draw_name(rng), **_draw(rng)}


_task = partial(TaskSpec, apps=("simple sms messenger",), complexity=1.2, draw=_draw, score=score, plan=_send_plan)

TASKS: tuple[TaskSpec, ...] = (
    _task(
        name="SimpleSmsSend",
        difficulty="medium",
        goal=make_phrasings(
            "Use Simple SMS Messenger to text {number}: {message}",
            'Write "{message}" to the number {number} with Simple SMS Messenger.',
            "{number} should get this text from Simple SMS Messenger: {message}",
        ),
        prepare=_prepare_send,
    ),
    _task(
        name="SimpleSmsReply",
        difficulty="easy",
        goal=make_phrasings(
            "{number} wrote to me in Simple SMS Messenger. Answer: {message}",
            'Open Simple SMS Messenger and answer the text from {number} with "{message}".',
            "Send {number} this reply in Simple SMS Messenger: {message}",
        ),
        prepare=_prepare_reply,
    ),
    _task(
        name="SimpleSmsReplyMostRecent",
        difficulty="medium",
        goal=make_phrasings(
            "Answer the newest text in Simple SMS Messenger: {message}",
            'Whoever texted me last in Simple SMS Messenger should get the reply "{message}".',
            "Look at the latest message in Simple SMS Messenger and reply with: {message}",
        ),
        prepare=_prepare_reply_most_recent,
    ),
    _task(
        name="SimpleSmsSendClipboardContent",
        apps=("simple sms messenger", "clipper"),
        difficulty="easy",
        goal=make_phrasings(
            "Text {number} whatever is on the clipboard, using Simple SMS Messenger.",
            "Paste the clipboard into a message to {number} in Simple SMS Messenger and send it.",
            "With Simple SMS Messenger, send the copied text to {number}.",
        ),
        prepare=_prepare_clipboard,
        plan=_plan_clipboard,
    ),
    _task(
        name="SimpleSmsSendReceivedAddress",
        complexity=1.8,
        difficulty="medium",
        goal=make_phrasings(
            "{name2} has just texted me where the event takes place. Pass that address on to {name1} in Simple SMS "
            "Messenger.",
            "Forward the event's address, which came from {name2}, to {name1} by Simple SMS Messenger.",
            "In Simple SMS Messenger, send {name1} the address that {name2} sent me a moment ago.",
        ),
        draw=_draw_address,
        prepare=_prepare_address,
        plan=_plan_address,
    ),
    _task(
        name="SimpleSmsResend",
        difficulty="medium",
        goal=make_phrasings(
            "Send {name} my last message once more in Simple SMS Messenger.",
            "{name} did not get my last text. Send the same one again with Simple SMS Messenger.",
            "Repeat in Simple SMS Messenger the message that I sent to {name} just now.",
        ),
        draw=_draw_resend,
        prepare=_prepare_resend,
        score=_score_resend,
        plan=_plan_resend,
    ),
)
