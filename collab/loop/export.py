"""Policies as directories for other programs: weights, a card, and the agents file that plays them.

team = find("runs/marl@best")             # or a fine-tuning run, a checkpoint, an adapter, "built-in:NAME"
done = export(team, Path("exported"), merge=False, dtype=None)
done.agents                               # what --agents takes: "exported/agents.yaml"
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from collab.config import AgentDefinition
from collab.errors import UsageError
from collab.learn.export import Precision, Source, Weights, load, open_source, reads, write
from collab.learn.folder import RunFolder, saving
from collab.library import BUILT_IN, Library
from collab.loop.interfaces import read_training
from collab.loop.layout import FILE, TrainingDir, training_around
from collab.loop.model_card import Facts, checkpoint_facts, model_card, team_card, training_facts
from collab.loop.policy import Policy, policy_after
from collab.loop.trained import PolicyName, epoch_of, parse_policy
from collab.models.layout import weights_digest
from collab.store.files import sync_directory, sync_files

AGENTS = "agents.yaml"
CARD = "README.md"
_ENGINE = ("max_batch", "cache_mb", "date", "chat_template_kwargs")
"""Options of a local model that an agents file keeps; the rest belongs to a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """Weights, who plays them, and what is known of them."""

    source: Source
    agents: Mapping[str, AgentDefinition]
    """Slot → how it plays; "" for whatever slot, where no team is known."""
    facts: Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """What a name stands for."""

    members: Mapping[str, Member]
    """Name of the directory → who; "" for one policy, which lies in the exported directory itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """What was written."""

    path: Path
    agents: str
    """What `--agents` takes to play it."""
    digests: Mapping[str, str]
    """Directory within `path`, "." for itself → SHA-256 over its weights."""


def find(name: str, base: str | None = None) -> Team:
    """What a name stands for; no weights are loaded.

    Args:
        name: `RUN@best`, `RUN@last`, `RUN@epoch3` of a training, a fine-tuning run, a checkpoint or an adapter
            directory, or "built-in:NAME".
        base: of an adapter; None for the one that it names.

    Raises:
        UsageError: a fine-tuning run is not done, a training has no best epoch or is named without an epoch.
        UnknownName: that epoch is not over, or no such checkpoint comes with the package.
        RunFormatError: the directory of a training cannot be read.
        ConfigError: there is no checkpoint, or something of it is missing.
    """
    folder = Path(name).expanduser()
    policy = None if folder.is_dir() and not (folder / FILE).is_file() else parse_policy(str(folder))
    if policy is not None:
        return _trained_team(policy, base)
    run = RunFolder(folder)
    if run.manifest_path.is_file():
        if not run.final.is_dir():
            training = training_around(folder)
            resume = run.resume if training is None else training.resume
            raise UsageError(f"{name}: the fine-tuning run is not done; go on with: {resume}")
        name = str(run.final)
    source = open_source(name, base)
    return Team(members={"": Member(source=source, agents={"": _known(name, source)}, facts=checkpoint_facts(source))})


def export(team: Team, out: Path, *, merge: bool, dtype: Precision | None) -> Exported:
    """Write a directory under another name and rename it: it is there whole or not at all.

    Args:
        out: new; directories above it are made.
        merge: whether adapters are added to the weights of their base; whole checkpoints stay as they are.
        dtype: of the written weights; None keeps it.

    Raises:
        UsageError: something is there already, or a dtype is asked of an adapter that stays one.
        ConfigError: weights cannot be read, or have no chat template.
        StoreFailure: it cannot be written; nothing is left behind.
    """
    if out.exists() or out.is_symlink():
        raise UsageError(f"--out {out}: is there already; name a new directory")
    out = out.resolve()
    partial = out.with_name(f".{out.name}.partial")
    try:
        with saving(out, "try again"):
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
        digests = {}
        for place, member in team.members.items():
            weights = load(member.source, merge=merge, dtype=dtype)
            with saving(out, "try again"):
                digests[place or "."] = _write(member, weights, partial / place, out / place)
        names = dict(both for place, member in team.members.items() for both in _files(member, out / place).items())
        agents = _spelled(names)
        with saving(out, "try again"):
            if "" not in team.members:
                _text(partial / CARD, team_card(out.name, digests, agents))
            sync_files(partial)
            partial.rename(out)
            sync_directory(out.parent)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return Exported(path=out, agents=agents, digests=digests)


# ------------------------------------------------------------------------------------------------- what is found


def _trained_team(name: PolicyName, base: str | None) -> Team:
    """A policy of a training, a member for each that was trained apart."""
    folder = TrainingDir(name.run)
    head, config = read_training(folder)
    number = epoch_of(name, folder, config, head)
    policy = policy_after(folder, config, number)
    if base is not None and not policy.adapters:
        raise UsageError(f"--base {base}: this team's policies are whole checkpoints; leave --base out")
    apart = config.method.policies == "per_agent"
    members = {}
    for group, slots in config.groups.items():
        agents = {slot: config.as_declared.agents[slot] for slot in slots}
        members[group if apart else ""] = Member(
            source=_source(policy, slots, base),
            agents={slot: _alone(agent, config.run.graph.slots.index(slot)) for slot, agent in agents.items()}
            if apart
            else agents,
            facts=training_facts(folder, config, head, number, group),
        )
    return Team(members=members)


def _source(policy: Policy, slots: Sequence[str], base: str | None) -> Source:
    adapter = policy.adapter_of(slots)
    return open_source(policy.of(slots)) if adapter is None else open_source(adapter, base or policy.of(slots))


def _alone(agent: AgentDefinition, position: int) -> AgentDefinition:
    """The same with the temperature of its own slot."""
    temperature = agent.sampling.temperature
    if not isinstance(temperature, list):
        return agent
    return agent.model_copy(
        update={"sampling": agent.sampling.model_copy(update={"temperature": temperature[position]})}
    )


def _known(name: str, source: Source) -> AgentDefinition:
    """How a checkpoint plays, as far as that is known: of a built-in one all, of another how much it reads."""
    library = Library()
    if name.startswith(BUILT_IN) and name.removeprefix(BUILT_IN) in library.names("agents"):
        return library.load("agents", name.removeprefix(BUILT_IN), AgentDefinition)
    plain = AgentDefinition(kind="local")
    recipe = source.card.get("recipe") or {}
    trained = recipe.get("context")
    options = {name: recipe[name] for name in ("date", "chat_template_kwargs") if recipe.get(name)}
    context = min(filter(None, (plain.context_tokens, trained, reads(source))))
    return plain.model_copy(update={"context_tokens": max(256, context), "options": options})


# ------------------------------------------------------------------------------------------------ what is written


def _write(member: Member, weights: Weights, target: Path, final: Path) -> str:
    """One directory; its weights' digest.

    Args:
        final: where it will lie.
    """
    if target.exists():  # the exported directory itself; made to see that it can be
        target.rmdir()
    write(member.source, weights, target)
    base = member.source.base if weights.model is None else None
    digest = weights_digest(target)
    for slot, path in _files(member, final).items():
        agent = next(iter(member.agents.values())) if not slot else member.agents[slot]
        _text(target / path.name, _agents_file(agent, final, base))
    card = model_card(
        final.name,
        member.facts,
        digest=digest,
        merged=member.source.base is not None and base is None,
        adapter=None if base is None else target,
        agents=_spelled(_files(member, final)),
    )
    _text(target / CARD, card)
    return digest


def _files(member: Member, folder: Path) -> dict[str, Path]:
    """Slot → its agents file: one for all that play alike, else one per slot."""
    alike = len({agent.model_dump_json() for agent in member.agents.values()}) == 1
    many = not alike and len(member.agents) > 1
    return {slot: folder / (f"agents-{slot}.yaml" if many else AGENTS) for slot in member.agents}


def _spelled(names: Mapping[str, Path]) -> str:
    """What `--agents` takes: one name for all slots, or one per slot."""
    if len(set(names.values())) == 1:
        return str(next(iter(names.values())))
    return ",".join(f"{slot}={path}" for slot, path in names.items())


def _agents_file(agent: AgentDefinition, place: Path, base: str | None) -> str:
    """An agents file of kind local.

    Args:
        place: where the weights will lie.
        base: of an adapter, whose weights lie there; None for a whole checkpoint.
    """
    kept = {name: value for name, value in agent.options.items() if name in _ENGINE}
    where = {"path": str(place)} if base is None else {"path": _whole(base), "adapter": str(place)}
    described = {
        "description": f"Exported by Collab to {place.name}; change options when the directory is moved.",
        "kind": "local",
        "options": {**where, **kept},
        **agent.model_dump(mode="json", include={"prompt", "history", "context_tokens", "summary", "modality"}),
        "sampling": agent.sampling.model_dump(mode="json"),
    }
    return yaml.safe_dump(described, sort_keys=False, allow_unicode=True, width=110)


def _whole(base: str) -> str:
    """A base as it is found from anywhere: an absolute path where it is a directory here, else its name."""
    folder = Path(base).expanduser()
    return str(folder.resolve()) if not base.startswith(BUILT_IN) and folder.is_dir() else base


def _text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")


def directories(done: Exported) -> Iterable[tuple[str, str]]:
    """Directory → digest of its weights, short, for people."""
    return ((str(done.path if name == "." else done.path / name), one[:12]) for name, one in done.digests.items())
