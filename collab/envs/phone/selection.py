"""Long-press selection of list entries, as file managers do it: the first press selects, taps then add and remove."""

from __future__ import annotations

from collab.envs.phone.state import Page, Phone, keep


def chosen(page: Page) -> tuple[str, ...]:
    """What is selected, in the order of selection; empty outside the selection mode."""
    selected: tuple[str, ...] = page.data.get("chosen", ())
    return selected


def toggle(phone: Phone, name: str) -> Phone:
    """Select an entry of the page on top, or take it out again."""
    now = chosen(phone.page)
    return select(phone, tuple(one for one in now if one != name) if name in now else (*now, name))


def select(phone: Phone, names: tuple[str, ...]) -> Phone:
    """Select exactly these entries."""
    return keep(phone, chosen=names)


def unselect(phone: Phone) -> Phone:
    """End the selection mode."""
    return select(phone, ())
