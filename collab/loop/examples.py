"""A recorded reply as an example: with its own prompt, in the pieces in which a policy reads it.

    row, again = ExampleBuilder.of(recorded, chats, config).build(target)

What a cell read is stored as text. Its pieces, in which it is tokenised, are made again from the messages that it
heard, and a reply is refused unless they are the stored prompt byte for byte, by its hash.

A reply is learned in the tokens in which it was sampled, under a prompt in the tokens in which it was read. A row holds
them where they are not those of the text. Where those of a sampled reply are not known in the policy's tokenizer, the
text has to do, and that is told ("retokenised").
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from collab.config import RunConfig
from collab.data.example import Example, Level, Provenance, Sampled
from collab.loop.config import TrainingConfig
from collab.loop.interfaces import Rollout
from collab.loop.policy import Policy, build_chat_tokenizer
from collab.models.tokenizer import ChatTokenizer
from collab.prompts.render import Template, hash_prefix
from collab.store.reader import RunReader
from collab.types import Prompt, PromptRef, ReplyRef, Segment, Step, Trajectory, Utterance

OTHER_PROMPT = "its prompt cannot be made again exactly"
EMPTY = "a side says nothing"
RETOKENISED = "the tokens in which a reply was sampled are not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRun:
    """Where what was said is looked up."""

    run: RunConfig
    trajectories: Mapping[str, Trajectory]
    """By id."""
    prefix: Callable[[str], str]
    """Stored text of a prompt's shared part by its hash (`RunReader.read_prefix`)."""

    def step(self, ref: ReplyRef) -> Step:
        """The step in which something was said."""
        return next(step for step in self.trajectories[ref.trajectory].steps if step.index == ref.step)

    def get_cell(self, ref: ReplyRef) -> Utterance:
        """What was said there."""
        return self.step(ref).matrix[ref.cell]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A reply to learn from, and what it is preferred to."""

    said: ReplyRef
    answered: ReplyRef | None = None
    """Another reply of the same step, whose input it is learned under; None for its own."""
    level: Level
    kind: str
    """What it is, in a word of the algorithm, e.g. "solved"."""
    rejected: ReplyRef | str | None = None
    """What it is preferred to: another cell's reply, or a text; None for nothing."""
    teacher: str
    """What said that it is good: a labeller's model, or "outcome"."""
    asked: str | None = None
    """Call of that model, by what was asked; None where it asks none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleBuilder:
    """Builds examples from replies of a rollout."""

    recorded: RecordedRun
    chats: Mapping[str, ChatTokenizer]
    """Slot → tokenizer of its policy."""
    config: TrainingConfig
    templates: Mapping[str, Template]
    """Of the run's prompts, by name."""

    @classmethod
    def of(cls, recorded: RecordedRun, chats: Mapping[str, ChatTokenizer], config: TrainingConfig) -> ExampleBuilder:
        """With the prompts of the run."""
        templates = {name: Template(name, texts) for name, texts in recorded.run.prompts.items()}
        return cls(recorded=recorded, chats=chats, config=config, templates=templates)

    @property
    def groups(self) -> dict[str, str]:
        """Slot → policy."""
        return {slot: group for group, slots in self.config.groups.items() for slot in slots}

    def build(self, target: Target) -> tuple[Example | str, bool]:
        """Return a row, or why there is none; and whether a sampled reply was tokenised again."""
        # The record is read back whole: prompt, heard messages and policy are those of the rollout, not of today.
        ref, record = target.said, self.recorded
        cell, step, trajectory = record.get_cell(ref), record.step(ref), record.trajectories[ref.trajectory]
        # A correction is trained under the prompt of the cell that erred, with the reply of another one.
        asked = record.get_cell(target.answered or ref)
        heard = [step.matrix[other] for other in asked.heard]
        # Template and tokenizer of the cell whose prompt it is: each slot may have its own.
        template, chat = self.templates[record.run.agents[asked.agent].prompt], self.chats[asked.agent]
        prompt = rebuild_prompt(asked, heard, record.prefix(asked.prompt.prefix), template, step.matrix.rounds)
        # A prompt that today's templates do not give again would be trained in a form that is never played.
        if prompt is None:
            return OTHER_PROMPT, False
        # An empty reply teaches nothing: its only token would be the end of the turn.
        worse, rejected = self._find_worse(target)
        if not cell.text or rejected == "":
            return EMPTY, False
        # Without its own tokens a reply is tokenised anew, which may differ from what was sampled.
        again = any(_get_known_tokens(one, chat) is None for one in (cell, worse) if one is not None)
        if again and self.config.method.retokenised == "refuse":
            return RETOKENISED, True
        # With sampled tokens where they are known: log-probabilities belong to those and to no other spelling.
        row = Example(
            level=target.level,
            kind=target.kind,
            prompt=_as_read(prompt, chat),
            reply=cell.text,
            reply_sampled=_get_sampled(cell, chat),
            rejected=rejected,
            rejected_sampled=None if worse is None else _get_sampled(worse, chat),
            action_type=cell.action.type if cell.action is not None else None,
            provenance=_build_provenance(target, trajectory, step),
        )
        return row, again

    def _find_worse(self, target: Target) -> tuple[Utterance | None, str | None]:
        """The reply that a target prefers its own to, None where nobody said it; and its text, None for nothing."""
        if not isinstance(target.rejected, ReplyRef):
            return None, target.rejected
        cell = self.recorded.get_cell(target.rejected)
        return cell, cell.text


def make_builder(config: TrainingConfig, rollout: Rollout, policy: Policy) -> ExampleBuilder:
    """Return the builder for a rollout; policies read as they will be trained."""
    chats = {slot: build_chat_tokenizer(rollout.run.agents[slot], path) for slot, path in policy.weights.items()}
    said, prefix = _Episodes(rollout.reader), rollout.reader.read_prefix
    return ExampleBuilder.of(RecordedRun(run=rollout.run, trajectories=said, prefix=prefix), chats, config)


class _Episodes(Mapping[str, Trajectory]):
    """Episodes of a run by id, each read when it is asked for; the last few are kept, not all of an epoch."""

    def __init__(self, reader: RunReader) -> None:
        self._reader = reader
        self._read = functools.lru_cache(maxsize=8)(reader.read_trajectory)

    def __getitem__(self, id: str) -> Trajectory:
        return self._read(id)

    def __iter__(self) -> Iterator[str]:
        return (one.id for one in self._reader.list_episodes())

    def __len__(self) -> int:
        return len(self._reader.list_episodes())


def rebuild_prompt(
    cell: Utterance, heard: Sequence[Utterance], prefix: str, template: Template, rounds: int
) -> Prompt | None:
    """What a cell read, in its pieces, messages in the tokens they were sampled in; None where it is another text.

    Args:
        heard: what the cell heard, in conversation order.
        prefix: stored text of its shared part.
        rounds: of the conversation.
    """
    system, _, shared = prefix.partition("\f")
    segments = template.render_segments(cell.agent, cell.round, rounds, heard)
    prompt = Prompt(system=system, shared=shared, segments=segments, layout=cell.prompt.layout)
    again = PromptRef(prefix=hash_prefix(system, shared), suffix=prompt.suffix, layout=prompt.layout)
    return prompt if again.hash == cell.prompt.hash else None


# ------------------------------------------------------------------------------------------------------ inside


def _build_provenance(target: Target, trajectory: Trajectory, step: Step) -> Provenance:
    return Provenance(
        environment=trajectory.environment,
        environment_version=trajectory.environment_version,
        task=trajectory.task.name,
        seed=trajectory.task.seed,
        step=step.index,
        screen=step.observation.digest,
        apps=trajectory.task.apps,
        teacher=target.teacher,
        teacher_prompt=target.asked,
    )


def _get_known_tokens(cell: Utterance, chat: ChatTokenizer) -> tuple[int, ...] | None:
    """The tokens in which a reply was sampled; None where they are not known, or those of another tokenizer."""
    return (cell.tokens or None) if cell.tokenizer == chat.fingerprint else None


def _get_sampled(cell: Utterance, chat: ChatTokenizer) -> Sampled | None:
    """The tokens of a reply; None where they are not known, or are those of its text."""
    known = _get_known_tokens(cell, chat)
    if known is None or known == chat.encode(cell.text):
        return None
    return Sampled(tokens=known, tokenizer=chat.fingerprint)


def _as_read(prompt: Prompt, chat: ChatTokenizer) -> Prompt:
    """With the tokens in which its messages were read, and only where these are not those of their texts."""
    pieces = chat.prompt_ids(prompt).pieces[1:-1]
    return replace(
        prompt, segments=tuple(_build_segment(*one, chat) for one in zip(prompt.segments, pieces, strict=True))
    )


def _build_segment(said: Segment, read: tuple[int, ...], chat: ChatTokenizer) -> Segment:
    if read == chat.encode(said.text):
        return Segment(text=said.text)
    return Segment(text=said.text, tokens=read, tokenizer=chat.fingerprint)
