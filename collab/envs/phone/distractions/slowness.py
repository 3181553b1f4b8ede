"""Slow screens: what was asked for shows only after a while, and touches are lost until then."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from collab.envs.phone.state import Phone
from collab.envs.phone.widgets import Node, View
from collab.types import Action


def loading(phone: Phone) -> View:
    """The screen while it loads: a turning wheel and nothing else."""
    return View(title="", style="plain", body=[Node("progress", "Loading…", "android:id/progress", height=1600)])


def hold(phone: Phone, steps: int) -> Phone:
    """Let the screen load for so many steps."""
    return replace(phone, loading=steps)


def act_while_loading(phone: Phone, action: Action, below: Callable[[Phone], Phone]) -> Phone:
    """Any action lets a step pass; only waiting and answering do what they always do.

    Args:
        below: does the action on the phone as if it did not load.
    """
    done = below(phone) if action.type in ("wait", "answer") else phone
    return replace(done, loading=phone.loading - 1)
