"""One agent: observation and heard messages → utterance.

Agents have no roles. They differ in their slot's name, their sampling and, in some teams, their weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from collab.dialects.base import Dialect
from collab.dialects.ground import name_dialects, read_in_dialect
from collab.dialects.prompt import DialectWriter, resize_picture
from collab.errors import ModelFailure, boundary, check_answer
from collab.models.base import CallClock, Model, Oracle, Privilege, Reply, Request
from collab.prompts.parse import ParsedReply, read_reply
from collab.prompts.render import (
    LAYOUT,
    PromptContext,
    SharedPrompt,
    StepChange,
    Template,
    fit_change,
    fit_shared,
)
from collab.seeds import derive
from collab.types import CellRef, Prompt, PromptRef, Sampling, Segment, Utterance


def compute_prefix_limit(context_tokens: int, *, messages: int, max_tokens: int) -> int:
    """Return the tokens left for system and shared part beside so many messages, with frames, and a reply."""
    return context_tokens - (messages + 1) * (max_tokens + 16) - 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """An agent in one slot of a graph."""

    slot: str
    definition: str
    """Name of the agents file; agents with the same one render the same shared prompt."""
    model: Model
    template: Template
    sampling: Sampling
    context_tokens: int = 8192
    history: int = 5
    summary: bool = False
    step_summaries: bool = False
    proposal: bool = False
    """See `AgentDefinition` for these three."""
    modality: str = "text"
    dialect: Dialect | None = None
    """None for the environment's own actions in the template's words."""
    call_s: float = 120.0

    @property
    def sees_marks(self) -> bool:
        """True if its picture shows the elements' numbers; an agent that aims by points sees the plain screen."""
        return self.modality != "text" and (self.dialect is None or self.dialect.names_elements)

    def build_shared(self, scene: StepContext, messages: int) -> SharedPrompt:
        """Build the part of this step's prompts that all cells share.

        Args:
            messages: most messages in a prompt of this step; room is kept for them and for the reply.
        """
        limit = self._limit_prefix(messages + self.proposal)
        seen = scene.context.observation
        return fit_shared(
            self.template if self.dialect is None else DialectWriter(self.dialect, (seen.width, seen.height)),
            scene.context,
            history=self.history,
            limit=limit,
            count=self.model.count_tokens,
            screen=self.modality != "image",
            images=tuple(scene.images) if self.modality != "text" else (),
        )

    async def speak(
        self, scene: StepContext, shared: SharedPrompt, place: CellContext, heard: Sequence[Utterance]
    ) -> Utterance:
        """Answer once.

        Raises:
            ModelFailure: the call failed after its retries or took longer than `call_s`.
        """
        # Seeds are by slot and round, so a cell samples the same whichever cells finish before it.
        seed = scene.seed_of(self.slot, place.round)
        where = (self.slot, place.round, place.rounds)
        proposal = None
        if self.proposal:
            segments = self.template.render_segments(*where, heard, is_proposal=True)
            request, cell = self._prepare(scene, shared, segments, derive(seed, "proposal"), place, heard)
            proposal = await self._answer(request, cell, None, scene.spent)
        # Shared part first, then what is heard, then the header: the longest common prefix over all cells of a step.
        told = [*heard] if proposal is None else [*heard, proposal]
        is_alone = self.dialect is not None and place.rounds == 1 and not told
        # A model alone gets its family's prompt and nothing more.
        segments = () if is_alone else self.template.render_segments(*where, told)
        request, cell = self._prepare(scene, shared, segments, seed, place, heard)
        return replace(await self._answer(request, cell, scene.context, scene.spent), proposal=proposal)

    def _prepare(
        self,
        scene: StepContext,
        shared: SharedPrompt,
        segments: tuple[Segment, ...],
        seed: int,
        place: CellContext,
        heard: Sequence[Utterance],
    ) -> tuple[Request, _Cell]:
        """Return a call of this cell, and what is recorded of its prompt."""
        prompt = Prompt(
            system=shared.system,
            shared=shared.text,
            segments=segments,
            images=shared.images,
            pictures_last=self.dialect is not None and not self.dialect.is_picture_first,
            layout=LAYOUT,
        )
        request = Request(
            prompt=prompt,
            sampling=self.sampling,
            seed=seed,
            images=tuple(self._fit_picture(scene.images[name]) for name in shared.images),
            has_pixel_points=self.dialect is not None and self.dialect.has_pixel_points,
            privilege=self._grant_privilege(scene),
        )
        # Only hashes and the cell's own suffix are kept; the shared text is stored once per step.
        reference = PromptRef(prefix=shared.prefix, suffix=prompt.suffix, layout=LAYOUT, trimmed=shared.trimmed)
        return request, _Cell(round=place.round, heard=tuple(one.cell for one in heard), prompt=reference)

    def _limit_prefix(self, messages: int) -> int:
        return compute_prefix_limit(self.context_tokens, messages=messages, max_tokens=self.sampling.max_tokens)

    async def answer_again(self, cell: Utterance, prompt: Prompt, seed: int, scene: PromptContext) -> Utterance:
        """Answer the prompt of a recorded cell once more; nothing is executed.

        Args:
            prompt: as the cell read it.
            seed: of this reply.
            scene: screen and actions of its step; all else of it is not read.

        Raises:
            ModelFailure: as `speak`.
        """
        request = Request(prompt=prompt, sampling=self.sampling, seed=seed)
        place = _Cell(round=cell.round, heard=cell.heard, prompt=cell.prompt)
        again = await self._answer(request, place, scene, lambda reply: None)
        return replace(again, proposal=cell.proposal)

    async def _answer(
        self, request: Request, place: _Cell, scene: PromptContext | None, spent: Callable[[Reply], None]
    ) -> Utterance:
        """Ask the model; return all that training needs: tokens, log-probabilities, and the policy that drew them.

        Args:
            scene: where the reply's action is read; None if it is asked for words alone.
        """
        # The clock includes queueing: it is what the cell waited, `queue_s` is the part that is not the model's.
        started = time.perf_counter()
        reply = await self._ask(request, spent)
        words = ParsedReply(reason="", action=None, failure=None)
        parsed = words if scene is None else self._read(reply, scene)
        return Utterance(
            agent=self.slot,
            round=place.round,
            heard=place.heard,
            text=reply.text,
            reason=parsed.reason,
            action=parsed.action,
            failure=parsed.failure,
            prompt=place.prompt,
            policy=self.model.policy,
            sampling=self.sampling,
            seed=request.seed,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            computed_tokens=reply.computed_tokens,
            tokens=reply.tokens,
            tokenizer=reply.tokenizer,
            logprobs=reply.logprobs,
            behaviour_logprobs=reply.behaviour_logprobs,
            finish=reply.finish,
            end_token=reply.end_token,
            end_logprob=reply.end_logprob,
            end_behaviour_logprob=reply.end_behaviour_logprob,
            latency_s=time.perf_counter() - started,
            queue_s=reply.queue_s,
            width=reply.width,
            cost_usd=reply.cost_usd,
            privileged=self.model.privileged,
            remarks=parsed.remarks,
        )

    def _fit_picture(self, image: bytes) -> bytes:
        return image if self.dialect is None else resize_picture(image, self.dialect.resize)

    def _read(self, reply: Reply, context: PromptContext) -> ParsedReply:
        space, seen = context.space, context.observation
        if self.dialect is None:
            parsed = read_reply(reply.text, space, seen, finish=reply.finish, aside=reply.aside)
            return name_dialects(parsed, reply.text)
        return read_in_dialect(reply.text, self.dialect, space, seen, finish=reply.finish, aside=reply.aside)

    async def summarise(
        self, context: PromptContext, since: int, seed: int, spent: Callable[[Reply], None]
    ) -> tuple[Utterance, SharedPrompt]:
        """Write a new summary from the old one and the steps from `since` on (one extra call per step)."""
        text = self.template.render_summary(context, since)
        return await self._write(SharedPrompt(system="", text=text, images=(), trimmed=()), {}, seed, spent)

    async def summarise_step(
        self, change: StepChange, images: Mapping[str, bytes], seed: int, spent: Callable[[Reply], None]
    ) -> tuple[Utterance, SharedPrompt]:
        """Write what a step changed (one extra call per step).

        Args:
            images: SHA-256 → picture, of the screens before and after it.
        """
        shown = (change.before.screenshot, change.after.screenshot) if self.modality != "text" else ()
        asked = fit_change(
            self.template,
            change,
            limit=self._limit_prefix(0),
            count=self.model.count_tokens,
            screen=self.modality != "image",
            images=tuple(name for name in shown if name is not None and name in images),
        )
        return await self._write(asked, images, seed, spent)

    async def _write(
        self, asked: SharedPrompt, images: Mapping[str, bytes], seed: int, spent: Callable[[Reply], None]
    ) -> tuple[Utterance, SharedPrompt]:
        """Ask for words beside the conversation; return them with their prompt, which is stored like a cell's."""
        prompt = Prompt(system="", shared=asked.text, segments=(), images=asked.images, layout=LAYOUT)
        request = Request(
            prompt=prompt,
            sampling=self.sampling,
            seed=seed,
            images=tuple(self._fit_picture(images[name]) for name in asked.images),
        )
        reference = PromptRef(prefix=asked.prefix, suffix="", layout=LAYOUT, trimmed=asked.trimmed)
        return await self._answer(request, _Cell(round=0, heard=(), prompt=reference), None, spent), asked

    async def _ask(self, request: Request, spent: Callable[[Reply], None]) -> Reply:
        clock = CallClock(self.call_s)
        with boundary(ModelFailure, f"call of {self.slot} to {self.model.policy.base} (limit {self.call_s:g} s)"):
            async with clock.running():
                reply = await self.model.generate(replace(request, clock=clock))
            check_answer(reply, Reply, self.model.generate, ModelFailure)
        spent(reply)
        return reply

    def _grant_privilege(self, scene: StepContext) -> Privilege | None:
        if not self.model.privileged:
            return None
        if scene.oracle is None:
            raise ModelFailure(f"{self.definition} needs an environment that knows solutions, this one knows none")
        seen, space = scene.context.observation, scene.context.space
        return Privilege(oracle=scene.oracle, observation=seen, space=space, dialect=self.dialect)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cell:
    """Place of a reply in the conversation, and the reference to its prompt."""

    round: int
    heard: tuple[CellRef, ...]
    prompt: PromptRef


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """Context of one deliberation."""

    context: PromptContext
    seed_of: Callable[[str, int], int]
    """(slot, round) → seed of that call."""
    oracle: Oracle | None = None
    """For privileged models only; None if the environment knows no solutions."""
    images: Mapping[str, bytes] = field(default_factory=dict)
    """SHA-256 → encoded picture of the screen; empty if no agent sees it."""
    spent: Callable[[Reply], None] = lambda reply: None
    """Called with every reply the moment it comes, also if its step is never finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellContext:
    """A cell's place in the conversation."""

    round: int
    rounds: int
