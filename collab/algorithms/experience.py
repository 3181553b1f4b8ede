"""Experience of a training: its judged episodes, oldest first, as references into its rollouts.

    experience = write_experience(folder, number, [(rollout, rewards)])      # of this epoch, once
    episodes = read_experience(folder, number)                   # as it was written
    buffer = fill_buffer(episodes, capacity=5000)

An epoch's list is written before anything is learned from it, so a resumed training remembers the same episodes. It
holds no copies: replies and prompts are read from the rollouts. Broken episodes, and those that no verdict was given
for, are not in it; a missing verdict is not a failure.

    with open_turn_builders(config, folder, runs, policy) as builders:
        turn, again = builders[run].build(ref)                   # the reply as it was sampled, under what was read

A reply ends with the end of the turn exactly if the policy said it: a reply that was cut at its longest length has no
such token, so its probability is that of what was said. A reply that gave no action is a turn as well: the policy said
it. Where a sampled reply's tokens are not known in the policy's tokenizer, its text is tokenised again and counted, and
its behaviour probabilities are None.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from pydantic import Field

from collab.config import AgentDefinition, Definition, validate
from collab.data.tokenize import Ids, get_reply_tokens, turn_end
from collab.dialects.actions import Resize
from collab.dialects.base import AS_IS
from collab.dialects.prompt import resize_picture
from collab.errors import RunFormatError, UnknownName
from collab.loop.config import TrainingConfig
from collab.loop.examples import OTHER_PROMPT, RecordedRun, read_prompt
from collab.loop.interfaces import Rollout
from collab.loop.policy import Policy, build_chat_tokenizer
from collab.loop.record import TrainingDir
from collab.models.tokenizer import ChatTokenizer, Places
from collab.models.vision import Picture, PictureReader
from collab.prompts.render import Template
from collab.rollout.dialects import load_dialect
from collab.rollout.run import read_recorded_config
from collab.store.blobs import read_blob
from collab.store.rewards import ReplyRef
from collab.store.run import RunStore
from collab.trainers.rl.replay import EpisodeRef, ReplayBuffer
from collab.trainers.rl.turns import Turn
from collab.types import Prompt, Trajectory, Utterance
from collab.utils.files import place_within, read_plain, report_write_errors, resolve_within, write_json

WITHHELD = "the server withheld its reply"
"""Then what was sampled is not what was recorded, and did not end there."""
PICTURE_SAID = "it says the token of a picture"
"""A pass would expect one more picture for such a reply."""
FILE = "experience.json"
"""In the folder of an epoch's examples."""


class JudgedEpisode(Definition):
    """An episode that may be learned from."""

    run: str
    """Directory of its run; "./…" lies within the training, any other was recorded before it."""
    trajectory: str
    """Its id there."""
    epoch: int
    """In which it was judged."""
    task: str
    instance: str
    """Task and seed, as "task#seed"; episodes of one group share it."""
    goal: str
    """The task's instruction."""
    limit: int = Field(ge=1)
    """Steps before it would have been truncated."""
    steps: int = Field(ge=1)
    """That were executed."""
    copied: int = 0
    """First steps of these that were taken over from another episode of the instance, in whose state it began."""
    reward: float
    """1 if it was judged a success, else 0."""
    versions: tuple[int, int]
    """Oldest and newest version of the policy that played it."""

    @property
    def key(self) -> tuple[str, str]:
        """Return run and id, which no other episode of a training has."""
        return self.run, self.trajectory

    @property
    def ref(self) -> EpisodeRef:
        """Return the reference that a replay buffer holds."""
        return EpisodeRef(run=self.run, trajectory=self.trajectory, steps=self.steps, versions=self.versions)


def name_instance(episode: Trajectory) -> str:
    """Return the task instance that an episode played, as "task#seed"."""
    return f"{episode.task.name}#{episode.task.seed}"


def list_judged(
    run: str, epoch: int, played: Iterable[Trajectory], rewards: Mapping[str, float]
) -> list[JudgedEpisode]:
    """Return the episodes of a run that were judged and have a step, in its order.

    Args:
        run: its directory, as `JudgedEpisode.run` holds it.
        epoch: in which they are judged.
        rewards: id of an episode → its reward; an episode without one is left out.
    """
    return [
        _describe(run, epoch, one, rewards[one.id])
        for one in played
        if one.error is None and one.steps and one.id in rewards
    ]


def _describe(run: str, epoch: int, episode: Trajectory, reward: float) -> JudgedEpisode:
    versions = [cell.policy.version for step in episode.steps for cell in step.matrix]
    return JudgedEpisode(
        run=run,
        trajectory=episode.id,
        epoch=epoch,
        task=episode.task.name,
        instance=name_instance(episode),
        goal=episode.task.goal,
        limit=episode.task.max_steps,
        steps=len(episode.steps),
        copied=episode.copied_steps,
        reward=reward,
        versions=(min(versions), max(versions)),
    )


def write_experience(
    folder: TrainingDir, number: int, judged: Iterable[tuple[Rollout, Mapping[str, float]]]
) -> list[JudgedEpisode]:
    """Write the experience of an epoch, unless it is written, and return it.

    Args:
        judged: rollouts of the epoch, each with its rewards as `list_judged` takes them.

    Raises:
        StoreFailure: the disk is full or permissions are missing.
        RunFormatError: what was written cannot be read.
    """
    path = _get_file(folder, number)
    if path.exists():
        return read_experience(folder, number)
    found = [
        episode
        for one, rewards in judged
        for episode in list_judged(
            place_within(folder.path.resolve(), str(one.path.resolve())), number, one.trajectories, rewards
        )
    ]
    with report_write_errors(path, folder.resume):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_json(path, [one.model_dump(mode="json") for one in found])
    return found


def has_experience(folder: TrainingDir, number: int) -> bool:
    """Return whether the experience of an epoch is written."""
    return _get_file(folder, number).exists()


def read_experience(folder: TrainingDir, number: int) -> list[JudgedEpisode]:
    """Return the experience of an epoch; RunFormatError if it cannot be read."""
    path = _get_file(folder, number)
    try:
        return [validate(JudgedEpisode, one, str(path)) for one in json.loads(read_plain(path))]
    except (OSError, ValueError, TypeError) as error:
        raise RunFormatError(f"{path}: cannot be read: {error}; remove it, and it is made again") from None


def fill_buffer(episodes: Iterable[JudgedEpisode], capacity: int) -> ReplayBuffer:
    """Return a buffer to which all of these were added in order.

    Args:
        capacity: in environment steps.
    """
    buffer = ReplayBuffer(capacity)
    for one in episodes:
        buffer.add(one.ref)
    return buffer


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPictures:
    """Reads recorded pictures as an agent's policy was shown them."""

    reader: PictureReader
    resize: Resize
    """Rule of the agent's dialect."""
    are_last: bool
    """Whether they stand behind the text."""

    @classmethod
    def of(cls, agent: AgentDefinition, name: str, chat: ChatTokenizer) -> SeenPictures | None:
        """Return them for an agent; None for one that sees none.

        Args:
            name: of its agents file.
        """
        if agent.modality == "text":
            return None
        dialect = load_dialect(agent, f"agents/{name}")
        if dialect is None:
            return cls(reader=PictureReader(chat), resize=AS_IS, are_last=False)
        return cls(reader=PictureReader(chat), resize=dialect.resize, are_last=not dialect.is_picture_first)

    def read(self, run: Path, pictures: Iterable[str]) -> tuple[Picture, ...]:
        """Return pictures of a run by their SHA-256.

        Raises:
            UnknownName: the run does not have one, e.g. as its process died before it was written.
        """
        return self.reader.read(tuple(resize_picture(read_blob(run, one), self.resize) for one in pictures))


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnBuilder:
    """Builds turns from the replies of one run."""

    recorded: RecordedRun
    run: str
    """The run's directory, as a turn holds it."""
    path: Path
    """The same, as it is found now."""
    chats: Mapping[str, ChatTokenizer]
    """Slot → tokenizer of its policy."""
    seen: Mapping[str, SeenPictures | None]
    """Slot → the pictures that its policy was shown."""
    templates: Mapping[str, Template]
    """Templates of the run's prompts, by name."""

    @classmethod
    def of(cls, recorded: RecordedRun, *, run: str, path: Path, chats: Mapping[str, ChatTokenizer]) -> TurnBuilder:
        """Return a builder with the prompts of the run."""
        config = recorded.run
        templates = {name: Template(name, texts) for name, texts in config.prompts.items()}
        seen = {slot: SeenPictures.of(config.agents[slot], config.agent_names[slot], chats[slot]) for slot in chats}
        return cls(recorded=recorded, run=run, path=path, chats=chats, seen=seen, templates=templates)

    def read_prompt(self, ref: ReplyRef) -> Prompt | None:
        """Return the prompt that a reply answered; None if it cannot be made again exactly."""
        slot = ref.cell.agent
        template = self.templates[self.recorded.run.agents[slot].prompt]
        prompt, seen = read_prompt(self.recorded, template, ref, self.chats[slot]), self.seen[slot]
        return prompt if prompt is None or seen is None else replace(prompt, pictures_last=seen.are_last)

    def read_ids(self, ref: ReplyRef) -> tuple[int, ...] | None:
        """Return the tokens of the prompt that a reply answered; None if it cannot be made again exactly."""
        prompt, seen, chat = self.read_prompt(ref), self.seen[ref.cell.agent], self.chats[ref.cell.agent]
        if prompt is None or seen is None:
            return None if prompt is None else chat.prompt_ids(prompt).ids
        # A picture that is gone leaves no prompt, as a text that has changed.
        with contextlib.suppress(UnknownName):
            return chat.prompt_ids(prompt, self._find_places(ref)).ids
        return None

    def _find_places(self, ref: ReplyRef) -> Places | None:
        """Return the places of the pictures in the prompt that a reply answered; raises as `SeenPictures.read`."""
        seen = self.seen[ref.cell.agent]
        return None if seen is None else seen.reader.places(seen.read(self.path, self.list_pictures(ref)))

    def list_pictures(self, ref: ReplyRef) -> tuple[str, ...]:
        """Return the SHA-256 of the pictures that a reply answered to."""
        shown = self.recorded.step(ref).observation.screenshot
        return () if shown is None or self.seen[ref.cell.agent] is None else (shown,)

    def list_prompts(self, trajectory: str) -> list[tuple[int, ...]] | None:
        """Return the tokens of what an episode's first cells read, a prompt per step; None if one is not known."""
        found = []
        for step in self.recorded.trajectories[trajectory].steps:
            first = next(iter(step.matrix))
            ids = self.read_ids(ReplyRef(trajectory=trajectory, step=step.index, cell=first.cell))
            if ids is None:
                return None
            found.append(ids)
        return found

    def build(self, ref: ReplyRef) -> tuple[Turn | str, bool]:
        """Return a turn, or the reason why there is none; and whether its reply was tokenised again."""
        (built,) = self.build_all(ref, [self.recorded.get_cell(ref)])
        return built

    def build_all(
        self, ref: ReplyRef, replies: Iterable[Utterance], known: Ids | None = None
    ) -> list[tuple[Turn | str, bool]]:
        """Return, as `build`, what is learned of several replies to the prompt that a recorded one answered.

        Args:
            known: tokens of that prompt, (tokens,), where it was built before.
        """
        prompt = self.read_ids(ref) if known is None else known
        if prompt is None:
            return [(OTHER_PROMPT, False) for _ in replies]
        return [self._build(ref, one, prompt) for one in replies]

    def _build(self, ref: ReplyRef, cell: Utterance, prompt: Sequence[int] | Ids) -> tuple[Turn | str, bool]:
        if cell.finish not in (None, "stop", "length"):
            return f"{WITHHELD}: {cell.finish}", False
        reply, behaviour, again = _read_reply(cell, self.chats[cell.agent])
        places = self._find_places(ref)
        if places is not None and places.token in reply:
            return PICTURE_SAID, again
        turn = Turn(
            run=self.run,
            ref=ref,
            prompt=np.array(prompt, np.int32),
            reply=np.array(reply, np.int32),
            behaviour=None if behaviour is None else np.array(behaviour, np.float32),
            version=cell.policy.version,
            temperature=cell.sampling.temperature,
            state=cell.prompt.prefix,
            instance=name_instance(self.recorded.trajectories[ref.trajectory]),
            invalid=cell.action is None,
            pictures=self.list_pictures(ref),
        )
        return turn, again


def _read_reply(cell: Utterance, chat: ChatTokenizer) -> tuple[tuple[int, ...], tuple[float, ...] | None, bool]:
    """Return a reply's tokens with its end, their behaviour log-probabilities, and whether it was tokenised again."""
    # A reply that ended at once has no token but its end, which is known like any other.
    known = cell.tokens if cell.tokenizer == chat.fingerprint else None
    whole = get_reply_tokens(cell) if known is not None else None
    if whole is not None:
        return whole.ids, whole.behaviour_logprobs, False
    # How it ended is not known, or by what: the policy's own end of a turn is learned unless it was cut.
    said = known if known is not None else chat.encode_reply(cell.text)
    return (said if cell.finish == "length" else (*said, turn_end(chat))), None, known is None


@contextmanager
def open_turn_builders(
    config: TrainingConfig, folder: TrainingDir, runs: Iterable[str], policy: Policy
) -> Iterator[dict[str, TurnBuilder]]:
    """Yield run → builder of its turns, while their runs are open.

    Args:
        runs: directories, as `JudgedEpisode.run` holds them.
        policy: whose tokenizers the turns are in.
    """
    chats = {slot: build_chat_tokenizer(config.run.agents[slot], path) for slot, path in policy.weights.items()}
    with ExitStack() as stack:
        found = {}
        for run in dict.fromkeys(runs):
            path = Path(resolve_within(folder.path, run))
            reader = stack.enter_context(RunStore.open(path).open_reader())
            recorded = RecordedRun.of(read_recorded_config(path), reader)
            found[run] = TurnBuilder.of(recorded, run=run, path=path, chats=chats)
        yield found


def _get_file(folder: TrainingDir, number: int) -> Path:
    return folder.get_epoch(number).examples / FILE
