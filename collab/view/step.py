"""One step whole: screen, replies, vote, executed action, judgements and pairs.

Screens are shown with their elements' boxes and pictures, actions with the spot that they touch.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from collab.envs.grammar import SPACES
from collab.envs.text import describe_target
from collab.errors import CollabError, EnvironmentFailure, RunFormatError, UnknownName, boundary
from collab.prompts.parse import read_reply
from collab.prompts.render import rebuild
from collab.store.blobs import get_blob_path, read_blob
from collab.store.reader import RunReader
from collab.store.rewards import PreferencePair, ReplyRef
from collab.store.tables import compute_layers
from collab.types import Action, CellRef, Element, ElementTarget, Observation, Point, Step, Trajectory, Utterance
from collab.view import common
from collab.view.common import explain_unreadable
from collab.view.elements import build_element_view, compare_screens, get_rectangle
from collab.view.readers import OpenRun
from collab.view.runs import ListedRun
from collab.view.schema.runs import Edge
from collab.view.schema.step import (
    ActionView,
    BallotView,
    CellKey,
    CellView,
    FailureView,
    MessageView,
    PairView,
    PolicyView,
    Rectangle,
    ReplyKey,
    ScreenChanges,
    ScreenPoint,
    ScreenView,
    StepView,
    TabView,
    VoteView,
    WholeCellView,
    WholeScreenView,
)
from collab.view.search import Judged, call_view, get_step_worth, is_rewarded, read_judged

if TYPE_CHECKING:
    from PIL import Image


FINAL = "final"
"""In place of a step: the screen after the last action."""
ELEMENTS = 2_000
"""Most listed elements of a screen; `build_whole_screen` has all."""
PIXELS = 12_000_000
"""Pixels of the largest screen that is drawn: a record may claim any size."""
_DRAWN = 32
"""Drawn screens in memory, about 100 kB each."""


def build_screen_view(
    observation: Observation, *, run: str, directory: Path, episode: str, step: int | None
) -> ScreenView:
    """Build the view of a screen, its texts cut, with the address of its picture.

    Args:
        run: id.
        step: None for the screen after the last action.
    """
    picture, unpictured = _locate_picture(observation, run, directory, episode, step)
    return ScreenView(
        space=common.shorten(observation.space),
        title=common.shorten(observation.title),
        url=None if observation.url is None else common.shorten(observation.url),
        width=observation.width,
        height=observation.height,
        tabs=[
            TabView(title=common.shorten(tab.title), url=common.shorten(tab.url), active=tab.active)
            for tab in observation.tabs
        ],
        notice=None if observation.notice is None else common.shorten(observation.notice),
        text=common.to_text(observation.text),
        elements=[build_element_view(element) for element in observation.elements[:ELEMENTS]],
        more=max(0, len(observation.elements) - ELEMENTS),
        picture=picture,
        unpictured=unpictured,
        digest=observation.digest,
    )


def build_whole_screen(observation: Observation) -> WholeScreenView:
    """Build the view of a screen's long parts, uncut."""
    return WholeScreenView(
        text=observation.text, elements=[build_element_view(one, whole=True) for one in observation.elements]
    )


def build_action_view(action: Action, observation: Observation) -> ActionView:
    """Build the view of an action, on the screen for which it was proposed."""
    element, box, spot = _place(action, observation)
    return ActionView(
        type=common.shorten(action.type),
        words=common.shorten(_describe_action(action, observation)),
        element=element,
        box=box,
        spot=spot,
        arguments={
            common.shorten(name): common.shorten(value) if isinstance(value, str) else value
            for name, value in action.arguments
        },
    )


def load_picture(directory: Path, hash: str) -> bytes:
    """Load a recorded picture as WebP bytes.

    Raises:
        UsageError: not a hash.
        UnknownName: the run has no such picture.
        RunFormatError: the file is no WebP.
    """
    why = explain_unreadable(directory, get_blob_path(directory, hash))
    if why is not None:
        raise RunFormatError(f"{get_blob_path(directory, hash)}: {why}")
    content = read_blob(directory, hash)
    if content[:4] != b"RIFF" or content[8:12] != b"WEBP":
        raise RunFormatError(f"{get_blob_path(directory, hash)}: is no picture any more")
    return content


def prepare() -> None:
    """Load the drawing library, so that the first screen does not wait for it."""
    importlib.import_module("collab.envs.simphone.ui.screen")


def can_draw(observation: Observation) -> bool:
    """Return whether a screen can be drawn from its elements alone."""
    from collab.envs.simphone.ui.screen import RENDERER

    return observation.renderer == RENDERER


def draw_screen(observation: Observation) -> bytes:
    """Draw a screen from its elements, as PNG bytes.

    Raises:
        UnknownName: no renderer can draw it.
        RunFormatError, EnvironmentFailure: the recorded data makes no screen.
    """
    _check(observation)
    return _draw(_Sheet(observation))


def draw_image(observation: Observation) -> Image.Image:
    """Draw a screen as an image; see `draw_screen`."""
    from collab.envs.simphone.ui.render import render

    _check(observation)
    with boundary(EnvironmentFailure, "the screen cannot be drawn"):
        return render(observation)


# ------------------------------------------------------------------------------------------------------ inside


def _check(observation: Observation) -> None:
    if not can_draw(observation):
        raise UnknownName(f"no renderer here draws screens of {str(observation.renderer)[:80]!r}")
    if not 0 < observation.width * observation.height <= PIXELS or observation.width < 0:
        raise RunFormatError(f"a screen of {observation.width} × {observation.height} pixels is not drawn")


class _Sheet:
    """A screen that equals another when both look the same."""

    def __init__(self, observation: Observation) -> None:
        self.observation = observation
        self._looks = repr((observation.elements, observation.drawing, observation.width, observation.height))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Sheet) and self._looks == other._looks

    def __hash__(self) -> int:
        return hash(self._looks)


@lru_cache(maxsize=_DRAWN)
def _draw(sheet: _Sheet) -> bytes:
    from collab.envs.simphone.ui.render import render_png

    with boundary(EnvironmentFailure, "the screen cannot be drawn"):  # recorded data may cause any error
        return render_png(sheet.observation)


def _locate_picture(
    observation: Observation, run: str, directory: Path, episode: str, step: int | None
) -> tuple[str | None, str | None]:
    """Return the address of a picture, and why it is missing although one was taken."""
    if observation.screenshot is None:
        if not can_draw(observation):
            return None, None
        asked = urlencode({"episode": episode, "step": FINAL if step is None else step}, errors="surrogatepass")
        return f"/api/run/{run}/drawn?{asked}", None
    try:
        path = get_blob_path(directory, observation.screenshot)
    except CollabError as error:
        return None, common.shorten(str(error))
    if not path.is_file():
        return None, "its picture was not written before the run died"
    return f"/api/run/{run}/picture/{observation.screenshot}", None


def _describe_action(action: Action, observation: Observation) -> str:
    try:
        return SPACES[action.space].describe(action, observation)
    except LookupError:  # recorded by a version with another grammar
        return " ".join([action.type, describe_target(action.target, observation)])


def _place(action: Action, observation: Observation) -> tuple[int | None, Rectangle | None, ScreenPoint | None]:
    """Return index, box and middle of the element, or the point in pixels."""
    target = action.target
    if isinstance(target, Point):
        scale = (observation.width, observation.height) if target.space == "normalised" else (1, 1)
        return None, None, (target.x * scale[0], target.y * scale[1])
    if not isinstance(target, ElementTarget):
        return None, None, None
    found = _find_element(observation.elements, target.index)
    box = None if found is None else found.box
    return target.index, get_rectangle(box), None if box is None else (float(box.center[0]), float(box.center[1]))


def _find_element(elements: Sequence[Element], index: int) -> Element | None:
    """Return the element at an index; None if the record is damaged."""
    if 0 <= index < len(elements) and elements[index].index == index:
        return elements[index]
    return next((one for one in elements if one.index == index), None)


_TRIMMED = 20
"""Most named omissions of a prompt, and remarks on a reply."""


def build_cell_view(
    cell: Utterance, step: Step, *, layer: int | None, judged: Judged, pairs: Sequence[str]
) -> CellView:
    """Return a cell of a step.

    Args:
        layer: its depth in the graph; None on a cycle.
        pairs: ids of those that it is a side of.
    """
    # Scores are looked up in the labels shown, so another label set gives another view of the same cell.
    word = judged.word(cell.cell)
    score = None if word is None else word.score
    return CellView(
        # Every text is cut: replies may be long, and pages show the beginning.
        agent=common.shorten(cell.agent),
        round=cell.round,
        layer=layer,
        text=common.to_text(cell.text),
        reason=common.to_text(cell.reason),
        action=None if cell.action is None else build_action_view(cell.action, step.observation),
        failure=_build_failure(cell),
        remarks=[common.shorten(remark) for remark in cell.remarks[:_TRIMMED]],
        ballot=_build_ballot(cell.cell, step),
        representative=cell.cell == step.vote.representative,
        # `fsum`: thousands of small log-probabilities lose digits in a plain sum.
        logprob=None if cell.logprobs is None else math.fsum(cell.logprobs),
        end_logprob=cell.end_logprob,
        finish=None if cell.finish is None else common.shorten(cell.finish),
        prompt_tokens=cell.prompt_tokens,
        completion_tokens=cell.completion_tokens,
        computed_tokens=cell.computed_tokens,
        latency_s=cell.latency_s,
        queue_s=cell.queue_s,
        width=cell.width,
        cost_usd=cell.cost_usd,
        temperature=cell.sampling.temperature,
        top_p=cell.sampling.top_p,
        seed=str(cell.seed),
        policy=PolicyView(
            base=common.shorten(cell.policy.base),
            adapter=None if cell.policy.adapter is None else common.shorten(cell.policy.adapter),
            version=cell.policy.version,
        ),
        privileged=cell.privileged,
        # Long lists are cut and counted, so that a page stays small for any record.
        trimmed=[common.shorten(what) for what in cell.prompt.trimmed[:_TRIMMED]],
        trimmed_more=max(0, len(cell.prompt.trimmed) - _TRIMMED),
        score=score,
        rewarded=is_rewarded(score),
        because=common.to_text("" if word is None else word.reason),
        missing=None if word is None or word.missing is None else common.shorten(word.missing),
        original=None if word is None else word.original,
        pairs=pairs,
    )


def build_whole_cell(reader: RunReader, step: Step, agent: str, round: int, judged: Judged) -> WholeCellView:
    """Return the prompt that a cell read and its reply, uncut; UnknownName when the step has no such cell."""
    # Compared by what an address can hold: names are cut in addresses, too.
    asked = CellKey(agent=common.shorten(agent), round=round)
    cell = next((one for one in step.matrix if common.build_cell_key(one.cell) == asked), None)
    if cell is None:
        raise UnknownName(f"step {step.index} has no cell of {agent[:80]!r} in round {round}")
    # A prompt whose shared part was lost is shown as far as it can be read.
    system, shared, unread = _read_prompt(reader, cell)
    # Uncut, unlike in `build_cell_view`: this view is asked for one cell at a time.
    word, call = judged.word(cell.cell), judged.call(cell.cell)
    return WholeCellView(
        agent=common.shorten(cell.agent),
        round=cell.round,
        system=system,
        shared=shared,
        suffix=cell.prompt.suffix,
        unread=unread,
        prompt=cell.prompt.hash,
        layout=common.shorten(cell.prompt.layout),
        reply=cell.text,
        tokens=cell.tokens,
        logprobs=cell.logprobs,
        because="" if word is None else word.reason,
        call=None if call is None else call_view(call),
    )


def _read_prompt(reader: RunReader, cell: Utterance) -> tuple[str | None, str | None, str | None]:
    """Read system text and shared part, or why they cannot be read."""
    try:
        prompt = rebuild(reader.read_prefix(cell.prompt.prefix), cell.prompt)
    except CollabError as error:
        return None, None, str(error)
    return prompt.system, prompt.shared, None


def _build_failure(cell: Utterance) -> FailureView | None:
    if cell.failure is None:
        return None
    return FailureView(kind=common.shorten(cell.failure.kind), detail=common.shorten(cell.failure.detail))


def _build_ballot(cell: CellRef, step: Step) -> int | None:
    return next((number for number, ballot in enumerate(step.vote.ballots) if cell in ballot.cells), None)


_SIDES = 50
"""Most named replies of a side; pairs of whole trajectories have as many as steps."""


def build_step_view(root: ListedRun, run: OpenRun, episode: str, step: int, labels: str | None) -> StepView:
    """Return a step of an episode.

    Args:
        labels: whose scores to show; None for none.

    Raises:
        UnknownName: there is no such episode or step.
    """
    # The step and the head alone: the whole trajectory need not be read for one page.
    one, head = run.reader.step(episode, step), run.reader.read_head(episode)
    told = read_judged(run, labels, episode, head.task.goal, one)
    pairs = run.beside.list_pairs(episode, step)
    # Neighbours by recorded steps, as some may be missing in a run that is being written.
    before, behind, count = _find_neighbours(run, episode, step)
    # A graph with a cycle, from a damaged run, has no depths; cells then stand without a layer.
    depths = compute_layers(one.matrix.agents, one.matrix.edges)
    effect = one.history.effect
    return StepView(
        run=root.id,
        episode=episode,
        step=step,
        steps=count,
        previous=before,
        next=behind,
        task=common.shorten(head.task.name),
        goal=common.to_text(head.task.goal),
        screen=build_screen_view(one.observation, run=root.id, directory=root.path, episode=episode, step=step),
        summary=common.to_text(one.summary),
        agents=[common.shorten(agent) for agent in one.matrix.agents],
        rounds=one.matrix.rounds,
        edges=shorten_edges(one.matrix.edges),
        layers=list_graph_layers(one.matrix.agents, one.matrix.edges),
        messages=_build_messages(one),
        # In conversation order, which is that of the matrix.
        cells=[
            build_cell_view(
                cell,
                one,
                layer=depths.get(cell.agent),
                judged=told,
                pairs=_list_pair_ids(ReplyRef(trajectory=episode, step=step, cell=cell.cell), pairs),
            )
            for cell in one.matrix
        ],
        vote=_vote(one, told),
        executed=None if one.executed is None else build_action_view(one.executed, one.observation),
        no_action=one.no_action,
        copied=one.copied,
        effect=common.to_text(effect),
        terminated=one.terminated,
        truncated=one.truncated,
        deliberation_s=one.deliberation_s,
        environment_s=one.environment_s,
        changes=_compare_with_next(run, one, head, behind, count),
        labels=labels,
        label_sets=run.beside.list_label_sets(),
        critic=common.shorten(told.critic),
        unjudged=common.shorten(told.unjudged),
        pairs=[_pair(name, pair, one.observation) for name, pair in pairs],
    )


def list_graph_layers(agents: Sequence[str], edges: Sequence[Edge]) -> list[list[str]]:
    """List agents that can speak at the same time, first to last."""
    depths = compute_layers(tuple(agents), tuple((speaker, hearer) for speaker, hearer in edges))
    found: list[list[str]] = [[] for _ in range(max(depths.values(), default=-1) + 1)]
    for agent in agents:
        if agent in depths:
            found[depths[agent]].append(common.shorten(agent))
    return found


def shorten_edges(edges: Sequence[Edge]) -> list[Edge]:
    """Return the edges with the names that are shown."""
    return [(common.shorten(speaker), common.shorten(hearer)) for speaker, hearer in edges]


# ------------------------------------------------------------------------------------------------------ inside


def _find_neighbours(run: OpenRun, episode: str, step: int) -> tuple[int | None, int | None, int]:
    """Return the nearest readable steps, and the number of the episode's steps."""
    rows = run.reader.query(
        "SELECT (SELECT max(step) FROM steps WHERE steps.key = episodes.key AND step < ?),"
        " (SELECT min(step) FROM steps WHERE steps.key = episodes.key AND step > ?),"
        " max(coalesce(steps, 0), (SELECT max(step) + 1 FROM steps WHERE steps.key = episodes.key))"
        " FROM episodes WHERE trajectory = ?",
        *(step, step, episode),
    )
    before, behind, count = rows[0]
    return before, behind, count


def _compare_with_next(
    run: OpenRun, step: Step, head: Trajectory, behind: int | None, count: int
) -> ScreenChanges | None:
    if behind == step.index + 1:
        return compare_screens(step.observation, run.reader.step(head.id, behind).observation)
    if step.index + 1 == count and head.final is not None:
        return compare_screens(step.observation, head.final)
    return None


def _build_messages(step: Step) -> list[MessageView]:
    return [
        MessageView(
            speaker=common.shorten(said.agent), said=said.round, hearer=common.shorten(cell.agent), round=cell.round
        )
        for cell in step.matrix
        for said in cell.heard
    ]


def _vote(step: Step, told: Judged) -> VoteView:
    vote = step.vote
    # The winner is the first ballot: ballots are stored in the order of the count.
    winners = set(vote.ballots[0].cells) if vote.ballots else set()
    scores = {cell.cell: told.score(cell.cell) for cell in step.matrix}
    # Cells without a score do not show whether the vote was right.
    scored = [(*cell, cell in winners, score) for cell, score in scores.items() if score is not None]
    found = get_step_worth("", step.index, scored)
    return VoteView(
        ballots=[
            BallotView(
                action=build_action_view(ballot.action, step.observation),
                cells=[common.build_cell_key(cell) for cell in ballot.cells],
                score=_mean([scores.get(cell) for cell in ballot.cells]),
            )
            for ballot in vote.ballots
        ],
        abstained=[common.build_cell_key(cell) for cell in vote.abstained],
        representative=None if vote.representative is None else common.build_cell_key(vote.representative),
        entropy=vote.entropy,
        tie=vote.tie,
        agreement=step.agreement,
        # Overruled: a rewarded proposal lost to one that is not.
        overruled=common.build_cell_key(CellRef(*found.best)) if found is not None and found.overruled else None,
    )


def _pair(name: str, pair: PreferencePair, observation: Observation) -> PairView:
    return PairView(
        id=common.shorten(pair.id),
        set=name,
        source=common.shorten(pair.source),
        chosen=[_reply(one) for one in pair.chosen[:_SIDES]],
        rejected=[_reply(one) for one in pair.rejected[:_SIDES]],
        more=sum(max(0, len(side) - _SIDES) for side in (pair.chosen, pair.rejected)),
        synthetic=None if pair.synthetic is None else common.to_text(pair.synthetic),
        synthetic_action=_read(pair.synthetic, observation),
        adversary=common.shorten(pair.adversary),
        critic=common.shorten(pair.critic),
    )


def _read(synthetic: str | None, observation: Observation) -> ActionView | None:
    space = SPACES.get(observation.space)
    if synthetic is None or space is None:
        return None
    action = read_reply(synthetic, space, observation).action
    return None if action is None else build_action_view(action, observation)


def _list_pair_ids(reply: ReplyRef, pairs: Sequence[tuple[str, PreferencePair]]) -> list[str]:
    return [common.shorten(pair.id) for _, pair in pairs if reply in pair.chosen or reply in pair.rejected]


def _reply(one: ReplyRef) -> ReplyKey:
    return ReplyKey(episode=one.trajectory, step=one.step, agent=common.shorten(one.cell.agent), round=one.cell.round)


def _mean(scores: Sequence[float | None]) -> float | None:
    known = [one for one in scores if one is not None]
    return math.fsum(known) / len(known) if known else None
