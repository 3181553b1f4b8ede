"""A language model as adversary: it plays somebody very clumsy, under the rewarded cell's own input.

    texts = read_adversary_prompts(library.path("prompts", "adversary"))
    adversary = LanguageAdversary(model=model, texts=texts)

It reads what the cell read, byte for byte (rules, task, history, screen, messages, header), then the role. So it shares
the cell's prefix in every cache, and the reply form is the cell's own. Deviations from CollabUIAgents (eq. 7): the
words of the role are ours; the right action is told, so that it is not repeated by chance; the released code leaves
out what the cell read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from collab.agents.agent import prefix_limit
from collab.errors import ConfigError
from collab.models.base import Model, lost_by
from collab.preferences.adversary import Occasion, Proposal, Refusal, label_of
from collab.prompts.parse import read_reply, write_reply
from collab.prompts.render import Templates, read_texts
from collab.rewards.query import ask, spoken
from collab.types import Prompt, Sampling, Segment, Spent

FOLDER = "adversary"
"""Name of the folder in `prompts/`."""
TOO_LONG = "what the cell read and the role do not fit into the adversary's context"
SAMPLING = Sampling(temperature=0.7, max_tokens=256)
"""Open in the paper; warm, so that mistakes differ. Room for a policy's reply."""
_ROLE = "clumsy"


def read_adversary_prompts(folder: Path) -> dict[str, str]:
    """The texts of a folder by template name; ConfigError when one is missing or cannot be read."""
    return read_texts(folder, (_ROLE,), "an adversary needs", "adversary")


class Clumsy:
    """The role, ready to be put behind a cell's input.

    Args:
        text: a Jinja template; it may ask for `right` (the right action in words) and `actions` (the list of actions,
            empty where the input already shows it).

    Raises:
        ConfigError: it is no template.
    """

    def __init__(self, text: str) -> None:
        self._templates = Templates(FOLDER, {_ROLE: text}, (_ROLE,))

    def prompt(self, occasion: Occasion) -> Prompt:
        """What the model is asked; ConfigError when the template asks for something that nobody tells it."""
        space, read = occasion.case.space, occasion.prompt
        listing = space.listing()
        role = self._templates.render(
            _ROLE,
            right=space.describe(occasion.right, occasion.case.observation),
            actions="" if listing in read.system else listing,
        )
        return replace(read, segments=(*read.segments, Segment(text="\n\n" + role)))


class LanguageAdversary:
    """Asks a model once per occasion; kind `llm`.

    Args:
        model: is not closed.
        texts: templates, see `read_adversary_prompts`.
        context_tokens: of prompt, reply and a chat's frame together; what does not fit is not asked.
        call_s: limit of one call in seconds, retries included and waiting in line not.

    Raises:
        ConfigError: the template does not fit, the context leaves no room for a prompt, or the model looks at solutions
            and would play nobody.
    """

    name = "llm"
    version = "1"
    reads_rewarded = False
    """It reads what the cell read, and what the cell said."""

    def __init__(
        self,
        *,
        model: Model,
        texts: Mapping[str, str],
        sampling: Sampling = SAMPLING,
        context_tokens: int = 8192,
        call_s: float = 120.0,
    ) -> None:
        if model.privileged:
            raise ConfigError(f"{model.policy.base} looks at solutions; an adversary needs a language model")
        if _ROLE not in texts:
            raise ConfigError(f"prompts/{FOLDER}: {_ROLE}.jinja missing")
        self._room = prefix_limit(context_tokens, messages=0, max_tokens=sampling.max_tokens)
        if self._room < 1:
            raise ConfigError(
                f"adversary llm: context_tokens {context_tokens} leave no room for a prompt beside a reply of "
                f"max_tokens {sampling.max_tokens}; raise the one or lower the other"
            )
        self._model, self._clumsy = model, Clumsy(texts[_ROLE])
        self._sampling, self._call_s = sampling, call_s

    @property
    def lost(self) -> int:
        """Calls that were sent and never answered whole: what they cost is not known."""
        return lost_by(self._model)

    async def propose(self, occasion: Occasion) -> Proposal:
        """Its reply, written as policies do where it can be read, and as it came where it cannot.

        Raises:
            Refusal: the prompt leaves no room for a reply.
            ModelFailure: the call failed after its retries or took longer than its limit.
        """
        prompt, sampling = self._clumsy.prompt(occasion), self._sampling
        if sum(map(self._model.count_tokens, (prompt.system, prompt.shared, prompt.suffix))) > self._room:
            raise Refusal(TOO_LONG)
        who, seed = "the adversary", occasion.seed
        reply = await ask(self._model, prompt, sampling, seed=seed, call_s=self._call_s, who=who)
        text = spoken(reply.text).strip()
        parsed = read_reply(text, occasion.case.space, occasion.case.observation)
        if parsed.action is not None:
            text = write_reply(parsed.reason, parsed.action, occasion.case.space)
        spent = Spent(
            calls=1,
            prompt_tokens=reply.prompt_tokens or 0,
            completion_tokens=reply.completion_tokens or 0,
            cost_usd=reply.cost_usd or 0.0,
        )
        return Proposal(text=text, maker=f"{label_of(self)}: {self._model.policy.base}", spent=spent)
