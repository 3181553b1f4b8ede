"""A phone that several connections share: the only thing of this room that changes."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from collab.envs.phone.screen import look
from collab.envs.phone.state import LAUNCHER, Phone, close_app, go_home, toast
from collab.envs.phone.suite import SimPhoneSuite

if TYPE_CHECKING:
    from collab.envs.phone.core import Episode

logger = logging.getLogger(__name__)


class PhoneHandle:
    """A phone behind the server.

    Args:
        phone: its state at the start; None for a fresh one with the apps of `suite`.
        suite: the tasks that a client can begin on it; None for the usual ones.
    """

    def __init__(self, phone: Phone | None = None, suite: SimPhoneSuite | None = None) -> None:
        self.suite = suite or SimPhoneSuite()
        self._phone = phone if phone is not None else self.suite.phone().phone
        self.helper: tuple[str, int] | None = None
        """md5 and size of the automation program that a client has pushed. It would run on a phone; here its place
        is taken by this server, so the bytes are not kept."""
        self.exam: Episode | None = None
        """The task that a client has begun on it (see `exam`); None before the first."""
        self.finger: tuple[float, float, float] | None = None
        """Where (pixels) and when (monotonic seconds) a finger was put down that has not been lifted yet."""

    @property
    def phone(self) -> Phone:
        """The present state."""
        return self._phone

    def put(self, phone: Phone) -> None:
        """Take over a new state. An app that cannot show itself in it has crashed, and is closed as Android does."""
        if phone is self._phone:
            return
        self._phone = after_crash(phone)


def after_crash(phone: Phone) -> Phone:
    """The phone as it is, or without the app in front when that cannot be shown."""
    try:
        look(phone)
    except Exception:  # whatever state came in from outside, one app's failure must not end the server
        logger.warning("app %s crashed and was closed", phone.foreground, exc_info=True)
        package = phone.foreground
        closed = go_home(phone) if package == LAUNCHER else close_app(phone, package)
        return toast(closed, f"{package} keeps stopping")
    return phone
