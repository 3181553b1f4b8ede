"""Scripted solutions of MiniWoB++ pages: from what stands in the goal and on the screen, never from hidden state.

    solve("click-button", goal, screen, deeds)     # remaining actions, or None when this screen is not understood

A solution reads the present screen as a person would and names what is left to do as far as the screen shows it:
a form is told to its end, a page of search results only up to the click that turns it. It is asked again after
every step. Because it never counts steps, it also finds back after somebody else's mistake, where the page lets it.
The same solutions serve the desktop view (web actions) and the phone view (mobile actions).
"""

from __future__ import annotations

from collab.envs.actions import MOBILE, WEB
from collab.envs.web import solutions_click, solutions_text
from collab.envs.web.scene import Deed, Lost, Move, Scene
from collab.types import Action, Observation

_SOLUTIONS = solutions_click.CLICK_SOLUTIONS | solutions_text.TEXT_SOLUTIONS

SOLVED = frozenset(_SOLUTIONS)
"""Pages with a solution."""


def solve(name: str, goal: str, screen: Observation, deeds: tuple[Deed, ...] = ()) -> tuple[Action, ...] | None:
    """Remaining actions of a page, as far as the screen names them.

    Args:
        name: of the page; one of `SOLVED`.
        goal: as the page words it.
        screen: the present observation, in either view.
        deeds: what was done so far.

    Returns:
        Actions of the screen's space; None when the solution does not know this screen.
    """
    scene = Scene(goal=goal, elements=screen.elements, deeds=deeds)
    try:
        moves = list(_SOLUTIONS[name](scene))
    except (Lost, ValueError):
        return None
    return tuple(_action(move, screen) for move in moves)


def _action(move: Move, screen: Observation) -> Action:
    index = None if move.element is None else move.element.index
    if screen.space == MOBILE.name:
        if move.verb == "choose":
            return MOBILE.make("click", index=_option(move, screen))
        if move.verb == "type":
            return MOBILE.make("input_text", index=index, text=move.text, clear_text=True)
        return MOBILE.make("click", index=index) if move.verb == "click" else MOBILE.make("wait")
    if move.verb == "choose":
        return WEB.make("select", id=index, option=move.text)
    if move.verb == "type":
        return WEB.make("type_string", id=index, content=move.text)
    return WEB.make("click", id=index) if move.verb == "click" else WEB.make("hover", id=index or 0)


def _option(move: Move, screen: Observation) -> int:
    """A phone shows the options of a list as elements, some lists only after a tap."""
    options = [element for element in screen.elements if element.role == "option" and element.label == move.text]
    return options[0].index if options else move.element.index if move.element else 0
