"""Candidates of a synthesis, each judged right or wrong, to which values are fitted before a policy first learns.

    class PPOMethod(PretrainedMethod): ...          # `pretraining` names their directory
    known = read_candidates(state, group)           # in tokens, once per process; None without any

`collab synth --levels candidate` makes them: a policy's replies to demonstrated steps, half of them right. The training
keeps their digest, so one that is resumed is fitted to the same ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import Field, SerializeAsAny, field_validator

from collab.algorithms.on_policy import OnPolicyMethod
from collab.algorithms.turn_algorithm import TurnConfig
from collab.data.parquet import read_rows
from collab.data.tokenize import NothingFits
from collab.errors import ConfigError, Diverged, RunFormatError, UsageError
from collab.loop.policy import Policy, build_chat_tokenizer
from collab.loop.state import LoopState
from collab.seeds import derive
from collab.synthesis.judgement import RIGHT, WRONG
from collab.utils.files import hash_file
from collab.utils.text import format_amount

if TYPE_CHECKING:
    from collab.trainers.rl.token_values import JudgedReplies, TokenValues, ValueRow

FILE = "candidate.parquet"
"""In the directory of a synthesis."""


class PretrainedMethod(OnPolicyMethod):
    """Settings of values that may be fitted to candidates first."""

    pretraining: str | None = None
    """Directory of `collab synth --levels candidate`: before they first learn, values are fitted to 1 for each right
    and to 0 for each wrong candidate. None begins with values of 0 everywhere."""
    pretraining_passes: int = Field(default=4, ge=1)
    """How often each of these candidates is learned then."""

    @field_validator("pretraining")
    @classmethod
    def _resolve(cls, path: str | None) -> str | None:
        # A training may be resumed from another directory.
        return None if path is None else str(Path(path).expanduser().resolve())

    @property
    def candidates(self) -> Path | None:
        """Return the file of candidates; None for none."""
        return None if self.pretraining is None else Path(self.pretraining) / FILE


class PretrainedConfig(TurnConfig):
    """A training whose values may be fitted to candidates first."""

    method: SerializeAsAny[PretrainedMethod]
    pretraining_digest: str | None = None
    """SHA-256 of the candidates that values are fitted to at first; None for none."""


def hash_candidates(method: PretrainedMethod) -> str | None:
    """Return the SHA-256 of the candidates that values are fitted to at first; None for none.

    Raises:
        UsageError: there are none, or they are all right or all wrong.
        ConfigError: the file has no rows of candidates.
    """
    path = method.candidates
    if path is None:
        return None
    if not path.is_file():
        raise UsageError(
            f"pretraining={method.pretraining}: has no {FILE}; make it with: collab synth --levels candidate --agents "
            "NAME --out DIR"
        )
    kinds = Counter(one.kind for one in read_rows(path))
    if not kinds[RIGHT] or not kinds[WRONG]:
        raise UsageError(
            f"{path}: {kinds[RIGHT]} right and {kinds[WRONG]} wrong of {format_amount(kinds.total(), 'candidate')}; "
            "values learn from both, so make more: collab synth --levels candidate --episodes N"
        )
    return hash_file(path)


def count_candidates(method: PretrainedMethod) -> int:
    """Return how many candidates there are."""
    return 0 if method.candidates is None else sum(1 for _ in read_rows(method.candidates))


def check_candidates(config: PretrainedConfig, first: Policy) -> None:
    """Refuse, before anything is played, candidates of which no right one or no wrong one fits; ConfigError."""
    if config.method.pretraining is not None:
        for slots in config.groups.values():
            _tokenize(config, first, slots)


def list_foreign(method: PretrainedMethod, label: str) -> list[str]:
    """Return a doubt about candidates of other environments than the one that is played, if there are any.

    Args:
        label: of the environment that is played.
    """
    path = method.candidates
    if path is None:
        return []
    counts = Counter(one.provenance.environment for one in read_rows(path))
    # The label of an environment's instructions begins with its own.
    foreign = {name: count for name, count in counts.items() if not label.startswith(name)}
    if not foreign:
        return []
    told = ", ".join(f"{name} {count}" for name, count in sorted(foreign.items()))
    return [
        f"{path}: {sum(foreign.values())} of {format_amount(counts.total(), 'candidate')} are of another environment "
        f"than {label} ({told}); what values learn of them need not hold here"
    ]


def read_candidates(state: LoopState, group: str) -> JudgedReplies | None:
    """Return the candidates of a training in the tokens of a policy, read once per process; None without any.

    Raises:
        RunFormatError: they are gone, or not those that the training began with.
        ConfigError: none of one kind fits into the context.
    """
    config = narrow_pretrained(state.config)
    path, kept = config.method.candidates, f"candidates of {group}"
    if path is None:
        return None
    if kept in state.kept:
        known: JudgedReplies = state.kept[kept]
        return known
    if not path.is_file() or hash_file(path) != config.pretraining_digest:
        raise RunFormatError(f"{path}: not the candidates that this training began with; put them back")
    found = state.kept[kept] = _tokenize(config, state.first, state.config.groups[group])
    if found.dropped:
        dropped = format_amount(found.dropped, "candidate")
        state.note(f"{path}: {dropped} left out, longer than rl.context={config.method.rl.context}")
    return found


def pretrain(
    state: LoopState, group: str, model: TokenValues, known: JudgedReplies, rows: Sequence[ValueRow]
) -> dict[str, Any]:
    """Fit values to candidates before they first learn.

    Args:
        rows: where a value is read, for each candidate.

    Returns:
        `pretrained`, how many candidates were learned, or `lost`, why the fit was undone: fields of an epoch's metrics.
    """
    try:
        model.fit(
            rows,
            known.targets,
            seed=derive(state.config.run.seed, "pretraining", group),
            is_clipped=False,  # from 0 to 1 is further than an epoch's fit may move a value
            groups=known.states,
            passes=narrow_pretrained(state.config).method.pretraining_passes,
        )
    except Diverged as diverged:
        return {"lost": f"{diverged.what}; its fit to candidates was undone"}
    return {"pretrained": len(rows)}


def narrow_pretrained(config: Any) -> PretrainedConfig:
    """Return a configuration as one of this kind."""
    assert isinstance(config, PretrainedConfig), "the loop gives each algorithm its own configuration"
    return config


def _tokenize(config: PretrainedConfig, policy: Policy, slots: Sequence[str]) -> JudgedReplies:
    from collab.trainers.rl.token_values import JudgedReplies

    method = config.method
    assert method.candidates is not None, "asked where there are some"
    chat = build_chat_tokenizer(config.run.agents[slots[0]], policy.of(slots))
    try:
        return JudgedReplies.read(method.candidates, chat, method.rl.context)
    except NothingFits as error:
        raise ConfigError(
            f"{method.candidates}: none of {format_amount(error.many, 'candidate')} of a kind fits into rl.context="
            f"{error.context}, the longest has {format_amount(error.longest, 'token')}; raise rl.context as far as the "
            "model allows, or use shorter ones"
        ) from None
