"""At the weights that played, the trainers compute the log-probabilities that were recorded, ends of replies included.

What is learned as "π / μ" is 1 then, for every reply: one that ended by itself and one that `max_tokens` cut.
"""

from __future__ import annotations

import asyncio
import math
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import pytest
import torch
from trl.trainer.utils import add_fused_lm_head

import collab
from collab.data.tokenize import ReplyTokens, get_reply_tokens
from collab.loop.examples import rebuild_prompt
from collab.loop.policy import build_chat_tokenizer
from collab.prompts.render import Template
from collab.rollout.run import read_stored_config
from collab.store.run import RunStore
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.trainers.base_model import load_weights, open_base
from collab.trainers.prefix_sharing import pack_batch, score_labels_only, score_replies, share
from collab.trainers.recipe import load_preset
from collab.types import Utterance

APART = 1e-4
"""Nats by which the sums over a reply's tokens may differ."""


@dataclass(frozen=True)
class Turn:
    """A recorded reply, read back from its run."""

    cell: Utterance
    prompt: tuple[int, ...]
    reply: ReplyTokens


@dataclass(frozen=True)
class Played:
    """A recorded run and the checkpoint that played it."""

    path: str
    turns: list[Turn]


def play(path: str, **choices: Any) -> Played:
    """Play and record; prompts come back in the tokens in which they were read."""
    out = choices["out"]
    asyncio.run(collab.collect(**choices, progress=False))
    run = read_stored_config(out)
    turns = []
    with RunStore.open(out).open_reader() as reader:
        for step in (step for one in reader.iterate_trajectories() for step in one.steps):
            for cell in step.matrix:
                agent = run.agents[cell.agent]
                template = Template(agent.prompt, run.prompts[agent.prompt])
                heard = [step.matrix[other] for other in cell.heard]
                prompt = rebuild_prompt(
                    cell, heard, reader.read_prefix(cell.prompt.prefix), template, step.matrix.rounds
                )
                assert prompt is not None
                reply = get_reply_tokens(cell)
                assert reply is not None, f"how {cell.cell} ended is not recorded"
                ids = build_chat_tokenizer(agent, path).prompt_ids(prompt).ids
                turns.append(Turn(cell=cell, prompt=ids, reply=reply))
    return Played(path=path, turns=turns)


@pytest.fixture(scope="module")
def babble(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """A random checkpoint whose tokens are bytes, so that one in 130 ends a reply; its team samples at two heats."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("babble")
    tiny = make_tiny_checkpoint(folder / "tiny", hidden=32, layers=2, vocabulary=259)
    definitions = {
        "envs/corridor.yaml": "backend: f\nbackends:\n  f: {kind: fake}\n",
        "graphs/pair.yaml": "slots: [ada, ben]\nrounds: 2\nedges: [[ada, ben]]\n",
        "agents/babble.yaml": f"kind: local\noptions: {{path: {tiny}}}\nprompt: pocket\ncontext_tokens: 4000\n"
        "sampling: {temperature: [1.0, 0.7], max_tokens: 140}\n",
    }
    for name, text in definitions.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return play(
        str(tiny),
        env="corridor",
        graph="pair",
        agents="babble",
        episodes=2,
        seed=1,
        settings=["environment.limits.max_steps=3"],
        library=folder,
        out=folder / "run",
    )


@pytest.fixture(scope="module")
def pocket(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """The policy that ships, alone on the phone, at temperature 1."""
    torch.set_num_threads(1)
    return play(
        "built-in:pocket",
        env="androidworld",
        graph="single",
        agents="pocket",
        tasks=["SystemWifiTurnOn", "ContactsAddContact"],
        settings=["environment.limits.max_steps=5", "agents.*.sampling.temperature=1"],
        out=tmp_path_factory.mktemp("pocket") / "run",
    )


@pytest.fixture(scope="module")
def team_of_pocket(tmp_path_factory: pytest.TempPathFactory) -> Played:
    """Four of the policy that ships, three rounds a step: most prompts hold what was heard."""
    torch.set_num_threads(1)
    return play(
        "built-in:pocket",
        env="androidworld",
        graph="team",
        agents="pocket",
        tasks=["SystemWifiTurnOn", "ContactsAddContact", "TasksCompletedTasksForDate"],
        settings=["environment.limits.max_steps=8", "agents.*.sampling.temperature=1"],
        out=tmp_path_factory.mktemp("team") / "run",
    )


def collate(turns: list[Turn], *, packed: bool) -> dict[str, Any]:
    """Build a batch as RL scores it: replies with their ends, and their temperatures."""
    shape = (len(turns), max(len(turn.prompt) + len(turn.reply.ids) for turn in turns))
    ids, mask, completion = (torch.zeros(shape, dtype=torch.long) for _ in range(3))
    for row, turn in enumerate(turns):
        start, stop = len(turn.prompt), len(turn.prompt) + len(turn.reply.ids)
        ids[row, :stop] = torch.tensor([*turn.prompt, *turn.reply.ids])
        mask[row, :stop], completion[row, start:stop] = 1, 1
    batch = {"input_ids": ids, "attention_mask": mask, "completion_mask": completion}
    heats = torch.tensor([turn.cell.sampling.temperature for turn in turns])
    return {**batch, "temperature": heats, **({"packed": pack_batch(batch)} if packed else {})}


def measure_gaps(played: Played, *, packed: bool) -> list[float]:
    """Return Σ log π − Σ log μ of every reply, in nats."""
    recipe = load_preset("pocket").get_recipe("dpo")
    model = load_weights(open_base(played.path, recipe), "float32")
    add_fused_lm_head(model, outputs=("log_probs", "entropy"))
    (share if packed else score_labels_only)(model)
    gaps = []
    turns = sorted(played.turns, key=lambda turn: turn.cell.sampling.temperature)
    for _, same in groupby(turns, key=lambda turn: turn.cell.sampling.temperature):
        batch = list(same)
        with torch.no_grad():
            found = score_replies(model, collate(batch, packed=packed)).log_probs.double().sum(1).tolist()
        gaps += [one - math.fsum(turn.reply.behaviour_logprobs) for one, turn in zip(found, batch, strict=True)]
    return gaps


@pytest.mark.medium
@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
def test_a_random_checkpoint_whose_replies_are_often_cut(babble: Played, packed: bool) -> None:
    ends = [turn.cell.finish for turn in babble.turns]
    assert 0.2 < ends.count("length") / len(ends) < 0.5
    assert set(ends) == {"stop", "length"}
    assert {turn.cell.end_token for turn in babble.turns} > {None}
    gaps = measure_gaps(babble, packed=packed)
    assert len(gaps) == len(babble.turns) > 16
    assert max(map(abs, gaps)) < APART


@pytest.mark.medium
@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
def test_the_shipped_policy_on_the_phone(pocket: Played, packed: bool) -> None:
    assert len(pocket.turns) >= 8
    assert all(turn.cell.end_logprob is not None for turn in pocket.turns if turn.cell.finish == "stop")
    assert max(map(abs, measure_gaps(pocket, packed=packed))) < APART


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_hundred_replies_of_a_team(team_of_pocket: Played) -> None:
    turns = team_of_pocket.turns[:200]
    assert len(turns) == 200
    assert len({turn.cell.cell.agent for turn in turns}) == 4
    for packed in (False, True):
        assert max(map(abs, measure_gaps(Played(team_of_pocket.path, turns), packed=packed))) < APART


def test_a_reply_without_its_end_is_another_reply(babble: Played) -> None:
    """At the random checkpoint the end costs five nats, so that a trainer which leaves it out is noticed."""
    ended = [turn for turn in babble.turns if turn.cell.finish == "stop"]
    assert ended
    assert max(turn.cell.end_behaviour_logprob for turn in ended) < -1
    assert all(len(turn.reply.ids) == len(turn.cell.tokens) + 1 for turn in ended)
    assert all(turn.reply.ids == turn.cell.tokens for turn in babble.turns if turn.cell.finish == "length")
