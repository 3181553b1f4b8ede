"""Prompts in a dialect: its own words for rules, task and history, and the picture in its own size.

Among several agents, the messages heard and the slot's header keep the frames of the agent's template, since no
family knows of a team.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from functools import lru_cache

from collab.dialects.actions import Resize, Size
from collab.dialects.base import Dialect, PastStep
from collab.envs.grammar import ActionSpace
from collab.errors import ModelFailure
from collab.prompts.render import PromptContext


@dataclass(frozen=True, slots=True)
class DialectWriter:
    """Writes the shared part of an agent's prompts in its dialect."""

    dialect: Dialect
    screen: Size

    def render_system(self, space: ActionSpace) -> str:
        """Render rules, the family's list of actions and its form of a reply."""
        return self.dialect.render_system("web" if space.name == "web" else "mobile", self.screen)

    def render_shared(self, context: PromptContext, *, history: int, lines: int | None, screen: bool) -> str:
        """Render task and history, then the screen as text if it is shown so; see `Template.render_shared`."""
        told = context.history[len(context.history) - history :] if history else ()
        steps = [PastStep(action=one.action, effect=one.effect, reason=one.reason) for one in told]
        parts = [self.dialect.render_user(context.goal, steps, len(context.history) - len(told) + 1)]
        parts += [f"So far: {context.summary}"] if context.summary else []
        if screen:
            parts.append("\n".join(context.observation.text.split("\n")[:lines]))
        return "\n\n".join(parts) + "\n"


@lru_cache(maxsize=16)
def resize_picture(image: bytes, rule: Resize) -> bytes:
    """Return an encoded picture in the size that a dialect's rule gives it, as PNG; the same bytes if it has it.

    Raises:
        ModelFailure: it cannot be read.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(io.BytesIO(image)) as opened:
            size = rule.fit(*opened.size)
            if size == opened.size:
                return image
            kept = io.BytesIO()
            opened.convert("RGB").resize(size, Image.Resampling.BICUBIC).save(kept, format="PNG")
            return kept.getvalue()
    except (UnidentifiedImageError, OSError, ValueError, Image.DecompressionBombError) as error:
        raise ModelFailure(f"a picture of {len(image)} bytes cannot be resized: {error}") from None
