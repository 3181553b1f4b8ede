"""A language model as adversary: it plays somebody very clumsy, under the rewarded cell's own input.

    prompts = read_clumsy(library.path("prompts", "adversary"))
    adversary = LanguageAdversary(model=model, sampling=sampling, clumsy=prompts)

It reads what the cell read, byte for byte (rules, task, history, screen, messages, header), then the role. So it shares
the cell's prefix in every cache, and the reply form is the cell's own. Deviations from CollabUIAgents (eq. 7): the
words of the role are ours; the right action is told, so that it is not repeated by chance; the released code leaves
out what the cell read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import jinja2

from collab.credit.adversary import Occasion, Proposal, label_of
from collab.credit.asking import ask
from collab.errors import ConfigError
from collab.models.base import Model
from collab.prompts.parse import read_reply, write_reply
from collab.types import Prompt, Sampling, Segment

FOLDER, FILE = "adversary", "clumsy.jinja"
"""Where in `prompts/` the role stands."""


def read_clumsy(folder: Path) -> str:
    """The text of the role; ConfigError when it is missing or cannot be read."""
    try:
        return (folder / FILE).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{folder / FILE}: cannot be read: {error}") from None


class Clumsy:
    """The role, ready to be put behind a cell's input.

    Args:
        text: a Jinja template, see `read_clumsy`; it may ask for `right` (the right action in words) and `actions`
            (the list of actions, empty where the input already shows it).

    Raises:
        ConfigError: it is no template.
    """

    def __init__(self, text: str) -> None:
        environment = jinja2.Environment(
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            autoescape=False,  # prompts are plain text
        )
        try:
            self._template = environment.from_string(text)
        except jinja2.TemplateSyntaxError as error:
            raise ConfigError(f"prompts/{FOLDER}/{FILE}:{error.lineno}: {error.message}") from None

    def prompt(self, occasion: Occasion) -> Prompt:
        """What the model is asked; ConfigError when the template asks for something that nobody tells it."""
        space, read = occasion.case.space, occasion.prompt
        listing = space.listing()
        try:
            role = self._template.render(
                right=space.describe(occasion.right, occasion.case.observation),
                actions="" if listing in read.system else listing,
            )
        except jinja2.UndefinedError as error:
            raise ConfigError(f"prompts/{FOLDER}/{FILE}: {error.message}") from None
        return replace(read, segments=(*read.segments, Segment(text="\n\n" + role)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LanguageAdversary:
    """Asks a model once per occasion.

    Raises:
        ConfigError: the model looks at solutions, so it would play nobody.
    """

    model: Model
    sampling: Sampling
    clumsy: Clumsy
    call_s: float = 120.0
    """Limit of one call in seconds, retries included and waiting in line not."""

    def __post_init__(self) -> None:
        if self.model.privileged:
            raise ConfigError(f"{self.model.policy.base} looks at solutions; an adversary needs a language model")

    @property
    def name(self) -> str:
        """As makers and labels tell it."""
        return "llm"

    @property
    def version(self) -> str:
        """Of how it asks and reads."""
        return "1"

    async def propose(self, occasion: Occasion) -> Proposal:
        """Its reply, written as policies do where it can be read, and as it came where it cannot.

        Raises:
            ModelFailure: the call failed after its retries or took longer than its limit.
        """
        reply = await ask(
            self.model,
            self.clumsy.prompt(occasion),
            self.sampling,
            seed=occasion.seed,
            call_s=self.call_s,
            who="the adversary",
        )
        text = reply.text.rpartition("</think>")[2].strip()
        parsed = read_reply(text, occasion.case.space, occasion.case.observation)
        if parsed.action is not None:
            text = write_reply(parsed.reason, parsed.action, occasion.case.space)
        return Proposal(text=text, maker=f"{label_of(self)}: {self.model.policy.base}")
