"""A model as the verifier: what it is asked for, how its reply is read, and how it is asked.

    VERDICT.read("All three fields hold what the task names. Verdict: True").value

Prompts ask for what `VERDICT` reads (`collab.rewards.answers`). A reply without a verdict is a missing one, and never a
failure.

A prompt has two templates: `system` (the role, the answers) and `episode` (task, actions, screens). Their folder is
that of the kind, `prompts/verifier` or `prompts/verifier-vision`, unless the agents file names another one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from collab.agents.agent import compute_prefix_limit
from collab.errors import ConfigError
from collab.models.base import Model, count_lost_calls
from collab.prompts.parse import read_withheld
from collab.prompts.render import Templates, read_texts
from collab.rewards.answers import AnswerForm
from collab.rewards.llm import WORLDS, ask_and_record, clean_for_sending
from collab.rewards.verifiers.base import Sight, Verdict, VerifierInput, build_verdict
from collab.seeds import derive
from collab.types import Prompt, Sampling

FOLDER = "verifier"
"""Name of the folder in `prompts/`, unless the kind has another."""
FILES = ("system", "episode")
VERDICT = AnswerForm("Verdict")
"""How a reply ends that calls an episode a success or a failure."""
TOO_LONG = "the episode does not fit into the verifier's context"
NO_PICTURE = "its last screen has no picture"


def read_judge_prompts(folder: Path, default: str) -> dict[str, str]:
    """Return a folder's templates by name; ConfigError when one is missing or unreadable.

    Args:
        default: the built-in folder whose templates stand in for missing ones.
    """
    return read_texts(folder, FILES, "a verifier's prompts need", default)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeQuestion:
    """A question about an episode."""

    prompt: Prompt
    images: tuple[bytes, ...] = ()
    """In the order of `prompt.images`."""


class EpisodeJudge:
    """Asks a model whether an episode succeeded; a subclass decides what it is shown.

    Args:
        model: is not closed.
        texts: templates from `read_judge_prompts`.
        history: last actions in a question; fewer where they do not fit.
        screens: last screens in a question; fewer where they do not fit, but the judged one always.
        context_tokens: for prompt, reply and chat template together, without pictures.
        call_s: limit of one call in seconds, with retries, without waiting in line.
        seed: of the verifier; each episode has one of its own.

    Raises:
        ConfigError: a template does not fit, the context leaves no room for a prompt, or the model reads solutions.
    """

    name: ClassVar[str]
    version: ClassVar[str] = "1"
    sees: ClassVar[frozenset[Sight]]
    prompts: ClassVar[str]
    """Folder of its built-in templates."""

    def __init__(
        self,
        *,
        model: Model,
        texts: Mapping[str, str],
        sampling: Sampling,
        history: int,
        screens: int,
        context_tokens: int,
        call_s: float,
        seed: int,
    ) -> None:
        # A model that sees solutions would judge by them, and its verdicts would mean nothing elsewhere.
        if model.privileged:
            raise ConfigError(f"{model.policy.base} looks at solutions; a verifier that is asked is a language model")
        room = compute_prefix_limit(context_tokens, messages=0, max_tokens=sampling.max_tokens)
        if room < 1 or history < 0 or screens < 1:
            raise ConfigError(
                f"verifier {self.name}: context_tokens {context_tokens} must be above {context_tokens - room}, which a "
                f"reply of max_tokens {sampling.max_tokens} and a chat's frame take; actions {history} must be at "
                f"least 0, screens {screens} at least 1"
            )
        self._model, self._templates, self._sampling = model, Templates(self.prompts, texts, FILES), sampling
        self._history, self._screens, self._room, self._call_s = history, screens, room, call_s
        self._seed = seed

    @property
    def lost(self) -> int:
        """Calls without a complete answer; their cost is unknown."""
        return count_lost_calls(self._model)

    async def verify(self, case: VerifierInput) -> Verdict:
        """Judge an episode; ModelFailure when the call failed for good."""
        question = self.build_question(case)
        if isinstance(question, str):
            return build_verdict(case, self, None, missing=question)
        # A seed per episode, so that asking in another order gives the same answer.
        reply, call = await ask_and_record(
            self._model,
            question.prompt,
            self._sampling,
            seed=derive(self._seed, "verifier", *case.key),
            call_s=self._call_s,
            who="the verifier",
            images=question.images,
        )
        # A reply that was withheld is told by its cause, since its format is not at fault.
        withheld = read_withheld(reply.finish, reply.aside)
        if withheld is not None:
            return build_verdict(case, self, None, missing=withheld.detail, calls=(call,))
        said = VERDICT.read(reply.text, cut=reply.finish == "length")
        return build_verdict(case, self, said.value, reason=said.reason, missing=said.missing, calls=(call,))

    def build_question(self, case: VerifierInput) -> JudgeQuestion | str:
        """Build the question about an episode without asking; the cause of a missing verdict where it cannot be."""
        images: list[bytes] = []
        if "screenshot" in self.sees:
            found = [case.pictures(screen) for screen in case.screens[-self._screens :]]
            if not found or found[-1] is None:
                return NO_PICTURE
            images = [one for one in found if one is not None]
        # Task and judged screen always stay: earlier screens go first, then the oldest actions.
        for history, screens in self._iterate_views(case):
            shown = tuple(images[-screens:])
            prompt = self._build_prompt(case, history, screens, shown)
            if self._model.count_tokens(prompt.system) + self._model.count_tokens(prompt.user) <= self._room:
                return JudgeQuestion(prompt=prompt, images=shown)
        return TOO_LONG

    def _iterate_views(self, case: VerifierInput) -> Iterator[tuple[int, int]]:
        """Yield numbers of last actions and screens to show, from the most to the least."""
        most = min(self._history, len(case.actions))
        yield from ((most, screens) for screens in range(self._screens, 1, -1))
        yield from ((history, 1) for history in range(most, -1, -1))

    def _build_prompt(self, case: VerifierInput, history: int, screens: int, images: tuple[bytes, ...]) -> Prompt:
        first = len(case.actions) - history
        # Earlier screens by their titles alone: a whole episode would fit no context.
        entries = [
            {"number": number + 1, "screen": screen.title, "action": entry.action, "effect": entry.effect}
            for number, (screen, entry) in enumerate(zip(case.screens, case.actions, strict=False))
            if number >= first
        ]
        space = case.screens[-1].space
        world = WORLDS.get(space, space)
        system = self._templates.render("system", world=world, success=VERDICT.ask(True), failure=VERDICT.ask(False))
        episode = self._templates.render(
            "episode",
            goal=case.episode.task.goal,
            history=entries,
            screens=[screen.text for screen in case.screens[-screens:]] if "text" in self.sees else [],
            pictures=len(images),
            success=VERDICT.ask(True),
            failure=VERDICT.ask(False),
        )
        names = tuple(hashlib.sha256(image).hexdigest() for image in images)
        return Prompt(system=system, shared=clean_for_sending(episode), segments=(), images=names)


class TextJudge(EpisodeJudge):
    """Judges episodes by asking a model that reads task, actions and last screens as text; kind `text-judge`.

    Earlier screens are named by their titles, and the last `screens` whole. Where not all fits, earlier screens are
    left out first, then the oldest actions. A checkpoint that was trained on this question (`collab verifier rows`) is
    asked in the same way, with the short prompt `prompts/verifier-model`.

    Args:
        screens: last screens that are shown whole.
    """

    name = "text-judge"
    sees: ClassVar[frozenset[Sight]] = frozenset({"text"})
    prompts = FOLDER

    def __init__(
        self,
        *,
        model: Model,
        texts: Mapping[str, str],
        sampling: Sampling,
        history: int = 30,
        context_tokens: int = 8500,
        call_s: float = 120.0,
        seed: int = 0,
        screens: int = 1,
    ) -> None:
        super().__init__(
            model=model,
            texts=texts,
            sampling=sampling,
            history=history,
            screens=screens,
            context_tokens=context_tokens,
            call_s=call_s,
            seed=seed,
        )


class ScreenshotJudge(EpisodeJudge):
    """Judges episodes by asking a model that takes pictures, and reads the last actions; kind `screenshot-judge`.

    More context lowers the agreement with people (DistRL, Wang et al. 2024, section 6.3): one screenshot and two
    actions are the default.

    Args:
        pictures: last screenshots that are shown.
        actions: last actions that are told.
    """

    name = "screenshot-judge"
    sees: ClassVar[frozenset[Sight]] = frozenset({"screenshot"})
    prompts = "verifier-vision"

    def __init__(
        self,
        *,
        model: Model,
        texts: Mapping[str, str],
        sampling: Sampling,
        context_tokens: int = 8500,
        call_s: float = 120.0,
        seed: int = 0,
        pictures: int = 1,
        actions: int = 2,
    ) -> None:
        super().__init__(
            model=model,
            texts=texts,
            sampling=sampling,
            history=actions,
            screens=pictures,
            context_tokens=context_tokens,
            call_s=call_s,
            seed=seed,
        )
