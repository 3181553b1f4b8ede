"""Select rows, check them against evaluation splits, count them, and write the data card.

`select` keeps each row once and limits each kind. Rows of levels candidate and judgement are balanced: in each task as
many are right as wrong.

    chosen = select(rows, seed=0, cap=500)
    refuse_leaks(chosen.rows, splits.values())

Dropped rows are counted by cause. Which rows of an over-full group stay depends on the seed and the rows' ids alone, so
a resumed synthesis ends with the same set.

`check_rows` compares rows from anywhere with today's evaluation splits, before any training:

    await check_rows(rows, Library())       # raises OverlapError, with counts and the first offenders
    list_undefined(rows, Library())         # environments without a definition: their rows are not compared
"""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from collab.config import load_environment
from collab.data.example import LEVELS, Example
from collab.data.splits import Overlap, Split, list_kept_by, refuse_overlap
from collab.errors import UsageError
from collab.library import Library
from collab.rollout.plan import load_splits
from collab.seeds import derive
from collab.synthesis.config import JudgementConfig, SynthConfig, Unit
from collab.synthesis.journal import INSTRUCTIONS, Done, Head, Record, Said, UnansweredQuestion
from collab.synthesis.judgement import RIGHT, WRONG
from collab.synthesis.teacher import StoredInstruction
from collab.types import Usage
from collab.utils.files import hash_text
from collab.utils.text import format_amount, format_markdown_table

Group: TypeAlias = tuple[str, str, str, str]
"""Level, kind, app and action type; empty where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The rows that are kept."""

    rows: tuple[Example, ...]
    """In the order in which they were made."""
    dropped: Mapping[str, int]
    """Cause → rows, e.g. "already there"."""


def group_of(row: Example) -> Group:
    """Return the group for balancing a row; the last of several apps counts, as it is the screen's."""
    app = row.provenance.apps[-1].casefold() if row.provenance.apps else ""
    return row.level, row.kind, app, row.action_type or ""


def select(rows: Iterable[Example], *, seed: int, cap: int | None = None, judgements: int | None = None) -> Selection:
    """Keep every row once, at most `cap` of a group, and as many right as wrong judgements in each task.

    Args:
        cap: None keeps all.
        judgements: the most rows of level judgement; None keeps all that are balanced.

    Raises:
        UsageError: the cap is below 1, there are no rows at all, or no judgement has a counterpart in its task.
    """
    if cap is not None and cap < 1:
        raise UsageError(f"balance: at most {cap} rows per kind, app and action type; allowed: 1 or more")
    first: dict[str, Example] = {}
    made = 0
    for row in rows:
        made += 1
        # By content: the same row from two units is one row.
        first.setdefault(row.id, row)
    if not first:
        raise UsageError("no row was made; ask for more screens, more tasks or other levels")
    # Draw within each group, so that a cap changes no other group.
    kept = set(first) if cap is None else _cap_rows(first, seed, cap)
    dropped = Counter({"already there": made - len(first)})
    if cap is not None:
        dropped[f"more than {cap} of a kind, app and action type"] = len(first) - len(kept)
    judged: list[Example] = []
    for level in ("candidate", "judgement"):
        judged = [first[name] for name in first if name in kept and first[name].level == level]
        if judged:
            pairs = _pair_judgements(judged, seed)
            chosen = {name for pair in pairs[: None if judgements is None else judgements // 2] for name in pair}
            dropped[f"{level} without a counterpart in its task"] = len(judged) - 2 * len(pairs)
            dropped[f"more than {judgements} of level {level}"] = 2 * len(pairs) - len(chosen)
            kept = (kept - {row.id for row in judged}) | chosen
    if not kept:
        raise UsageError(
            f"level judgement: all {len(judged)} candidates are {judged[0].kind} in their tasks, and half of the rows "
            "should be; ask for more episodes, or sample hotter: --set judgement.policy.sampling.temperature=1.5"
        )
    # Keep the plan's order: the same set must be the same file each time.
    return Selection(rows=tuple(row for name, row in first.items() if name in kept), dropped=+dropped)


def _cap_rows(rows: Mapping[str, Example], seed: int, cap: int) -> set[str]:
    """Return the ids of the rows to keep: in each group those that the seed ranks first."""
    groups: defaultdict[Group, list[str]] = defaultdict(list)
    for name, row in rows.items():
        groups[group_of(row)].append(name)
    ranked = (sorted(names, key=lambda name: (derive(seed, "balance", name), name)) for names in groups.values())
    return {name for names in ranked for name in names[:cap]}


def _pair_judgements(rows: Sequence[Example], seed: int) -> list[tuple[str, str]]:
    """Pair right with wrong rows of each task, by id, until one kind is used up; tasks and pairs in a drawn order.

    Rows of a step that has both kinds come first: only they teach that the reply decides, and not the screen.
    """
    steps: defaultdict[tuple[str, int, int, str], set[str]] = defaultdict(set)
    for row in rows:
        steps[_step_of(row)].add(row.kind)
    is_alone = {row.id: len(steps[_step_of(row)]) < 2 for row in rows}
    kinds: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for row in sorted(rows, key=lambda row: (is_alone[row.id], derive(seed, "balance", row.id), row.id)):
        kinds[row.provenance.task, row.kind].append(row.id)
    tasks = {task for task, _ in kinds}
    pairs = [pair for task in tasks for pair in zip(kinds[task, RIGHT], kinds[task, WRONG], strict=False)]
    return sorted(pairs, key=lambda pair: (any(map(is_alone.get, pair)), derive(seed, "balance", *pair), pair))


def _step_of(row: Example) -> tuple[str, int, int, str]:
    """Return which step of which instance a row is about."""
    return row.provenance.task, row.provenance.seed, row.provenance.step, row.provenance.screen


def refuse_leaks(rows: Iterable[Example], splits: Iterable[Split]) -> Overlap:
    """Check that no row holds an evaluation instance.

    Raises:
        OverlapError: one does; the message has counts and the first offenders.
        UsageError: there are no rows to check.
    """
    found = refuse_overlap((row.instance for row in rows), list_kept_by(splits))
    if found.checked == 0:
        raise UsageError("there are no rows to check for what is kept for evaluation; an empty set cannot be used")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SynthesisReport:
    """Numbers of a synthesis so far."""

    rows: int
    """Kept."""
    by_level: Mapping[str, int]
    by_kind: Mapping[str, int]
    """"level / kind" → rows."""
    by_app: Mapping[str, int]
    """App of the screen → rows; "" where the environment names none."""
    by_action: Mapping[str, int]
    """Action type of the reply → rows; "" for answers in words."""
    made: int
    """Rows before any was dropped."""
    dropped: Mapping[str, int]
    """Cause → rows."""
    refused: Mapping[str, Mapping[str, int]]
    """Level → cause → things that could have become a row."""
    units: int
    """That are over."""
    broken: Mapping[str, str]
    """Unit → why it broke; its rows are missing, and a resume makes it again."""
    screens: int
    """That were taught."""
    playable: int
    """Instructions that can be played as tasks."""
    spent: Usage
    """By all processes; `lost` are calls without a complete answer. Calls in flight at a kill are not counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """The records of a synthesis, by unit."""

    units: Mapping[str, Done]
    """The last record of each unit that did not break."""
    broken: Mapping[str, str]
    said: Mapping[str, str]
    """Replies of the teacher's model by the calls that they answer."""
    spent: Usage

    def iterate_rows(self, order: Sequence[Unit]) -> Iterable[Example]:
        """Return all rows in the order of the plan."""
        return (row for unit in order if unit.id in self.units for row in self.units[unit.id].rows)

    def iterate_instructions(self, order: Sequence[Unit], kept: Collection[str]) -> Iterator[StoredInstruction]:
        """Yield the instructions of the rows whose ids are in `kept`, at most one of each, in the order of the plan."""
        seen = set[str]()
        for one in (one for unit in order if unit.id in self.units for one in self.units[unit.id].instructions):
            if one.row in kept and seen.isdisjoint((one.row, one.name)):
                seen |= {one.row, one.name}
                yield one


def gather(records: Iterable[Record]) -> Made:
    """Sort records by unit; a later complete record replaces a broken one."""
    units: dict[str, Done] = {}
    # In log order: a unit that broke and was made later is whole.
    broken: dict[str, str] = {}
    said: dict[str, str] = {}
    spent = Usage()
    for record in records:
        if isinstance(record, Said):
            said[record.said] = record.text
            spent += record.spent
        elif isinstance(record, UnansweredQuestion):
            # Questions without an answer may have cost something, so they are counted.
            spent += Usage(lost=record.lost)
        elif record.broken is not None:
            broken[record.unit] = record.broken
        else:
            units[record.unit] = record
            broken.pop(record.unit, None)
    return Made(units=units, broken=broken, said=said, spent=spent)


def report(made: Made, selection: Selection, playable: int) -> SynthesisReport:
    """Count the made and kept rows; `playable` is the number of instructions that can be played as tasks."""
    # Counted on what was kept; `made` and `refused` say what was left out, and why.
    rows, done = selection.rows, made.units.values()
    groups = [group_of(row) for row in rows]
    levels = Counter(row.level for row in rows)
    refused: dict[str, Counter[str]] = {}
    # Refusals are counted per level, as they have other causes there.
    for record in done:
        for level, causes in record.refused.items():
            refused.setdefault(level, Counter()).update(causes)
    # Sorted, and zeros left out: the card is read by people.
    return SynthesisReport(
        rows=len(rows),
        by_level={level: levels[level] for level in LEVELS if levels[level]},
        by_kind=_sort_counts(Counter(f"{level} / {kind}" for level, kind, _, _ in groups)),
        by_app=_sort_counts(Counter(app for _, _, app, _ in groups)),
        by_action=_sort_counts(Counter(action for _, _, _, action in groups)),
        made=sum(len(record.rows) for record in done),
        dropped=dict(selection.dropped),
        refused={level: _sort_counts(refused[level]) for level in LEVELS if refused.get(level)},
        units=len(made.units) + len(made.broken),
        broken=dict(made.broken),
        screens=sum(record.screens for record in done),
        playable=playable,
        spent=made.spent,
    )


def format_most_refused(records: Iterable[Done]) -> str:
    """Format the three most frequent causes of refusals; empty without any."""
    causes = Counter[str]()
    for record in records:
        for counts in record.refused.values():
            causes.update(counts)
    return ", ".join(f"{cause} ({count})" for cause, count in list(_sort_counts(causes).items())[:3])


def _sort_counts(counts: Counter[str]) -> dict[str, int]:
    """Sort by count, most first, then by name."""
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


_NO_APP, _WORDS = "(none named)", "(answer in words)"


def write_card(head: Head, config: SynthConfig, report: SynthesisReport, checked: Iterable[str]) -> str:
    """Write the card of a complete set as Markdown; `checked` names the evaluation splits compared with."""
    counts = ", ".join(f"{count} {level}" for level, count in report.by_level.items())
    # In the order in which a reader judges a data set: origin, content, losses, limits.
    parts = [
        f"# {head.environment}: {format_amount(report.rows, 'row')} ({counts})",
        "Agentic fine-tuning data that an environment and a teacher made by themselves (CollabUIAgents, Appendix B).",
        "## Where it comes from",
        format_markdown_table(("", ""), _list_origin(head, config, report, checked)),
        "## What is in it",
        *(
            format_markdown_table((title, "rows"), [(name, str(count)) for name, count in counts.items()])
            for title, counts in _list_contents(report)
        ),
        "## What was left out",
        format_markdown_table(("level", "cause", "times"), _list_losses(report)),
        "## Limits",
        _describe_limits(config),
        "## How to make it again",
        f"```console\n$ {build_command(config)}\n```",
        _describe_repeatability(config),
        "## Licence",
        _describe_licence(head, config),
    ]
    return "\n\n".join(parts) + "\n"


def build_command(config: SynthConfig) -> str:
    """Build the command that makes the same set."""
    words = ["collab", "synth", "--env", config.environment_name, "--backend", config.environment.backend]
    words += ["--levels", ",".join(config.levels), "--teacher", config.teacher_name, "--prompt", config.prompt_name]
    if config.judgement is not None:
        words += ["--agents", config.judgement.policy_name, "--critic", config.judgement.critic_name]
    words += ["--episodes", str(config.episodes), "--screens", str(config.screens), "--seed", str(config.seed)]
    words += [f"--tasks={task}" for task in config.asked_tasks]
    words += [f"--set={setting}" for setting in config.settings]
    return shlex.join([*words, "--out", "DIR"])


def _list_origin(
    head: Head, config: SynthConfig, report: SynthesisReport, checked: Iterable[str]
) -> list[tuple[str, str]]:
    # Everything that decides which rows there are: with these lines the set can be made again.
    split, without, judged = config.split, len(config.unsolved), config.judgement
    rows = [
        ("environment", f"{head.environment}, version {head.environment_version}"),
        ("split", f"{split.name}, SHA-256 `{split.hash}`" if split else "none"),
        ("checked against", ", ".join(checked) or "nothing is kept"),
        ("tasks", str(len(config.tasks)) + (f"; {without} without a known solution are left out" if without else "")),
        ("run seed", str(config.seed)),
        ("teacher", _describe_teacher(head, config)),
        ("policy's prompt", f"{config.prompt_name}, {_format_hashes(config.prompt)}"),
        *([] if judged is None else [("candidates", _describe_candidates(head, judged))]),
        ("screens taught", str(report.screens)),
        *([("instructions that can be played", f"{report.playable}, in {INSTRUCTIONS}")] if report.playable else []),
        ("collab", head.versions.get("collab", "unknown")),
    ]
    # An oracle has no prompts and no sampling.
    if config.teacher is not None:
        rows += [
            ("teacher's prompts", _format_hashes(config.teacher_prompts)),
            ("teacher's sampling", f"temperature {config.sampling.temperature}, at most {config.sampling.max_tokens}"),
        ]
    if config.teacher is not None or judged is not None:
        spent = report.spent
        cost = f", {spent.cost_usd:.2f} USD" if spent.cost_usd else ""
        # Calls without an answer may have cost something: mentioned, not estimated.
        cost += f", and what {spent.lost} calls cost that were sent and never answered" if spent.lost else ""
        rows.append(("spent", f"{format_amount(spent.calls, 'call')}, {spent.tokens} tokens{cost}"))
    return rows


def _describe_teacher(head: Head, config: SynthConfig) -> str:
    if config.teacher is None:
        return "oracle: the environment's own state and solutions, no language model"
    policy = head.model["policy"]
    adapter = f", adapter {policy['adapter']}" if policy["adapter"] else ""
    return f"{config.teacher_name}: the model {policy['base']}{adapter}"


def _describe_candidates(head: Head, judged: JudgementConfig) -> str:
    sampling = judged.policy.sampling
    return (
        f"{judged.candidates} per step of {judged.policy_name}: the model {head.policy['policy']['base']}, temperature "
        f"{sampling.temperature}; questions of {judged.critic_name}, {_format_hashes(judged.critic_prompt)}"
    )


def _format_hashes(texts: Mapping[str, str]) -> str:
    return ", ".join(f"{name} `{hash_text(text)[:12]}`" for name, text in sorted(texts.items()))


def _list_contents(report: SynthesisReport) -> list[tuple[str, Mapping[str, int]]]:
    return [
        ("level", report.by_level),
        ("level / kind", report.by_kind),
        ("app of the screen", {app or _NO_APP: count for app, count in report.by_app.items()}),
        ("action type", {action or _WORDS: count for action, count in report.by_action.items()}),
    ]


def _list_losses(report: SynthesisReport) -> list[tuple[str, str, str]]:
    refused = [
        (level, cause, str(count)) for level, causes in report.refused.items() for cause, count in causes.items()
    ]
    dropped = [("all, of rows that were made", cause, str(count)) for cause, count in report.dropped.items()]
    return [*refused, *dropped] or [("all", "nothing", "0")]


def _describe_limits(config: SynthConfig) -> str:
    if config.teacher is None:
        return (
            "Answers are exact, and as plain as the rules that write them: they hold no more than the screen and the "
            "environment's state do, in few phrasings. Solutions are the environment's own, one way of several."
            + (" Judgements call right what the solution does next, and nothing else." if config.judgement else "")
        )
    return (
        "A language model wrote the replies. Every action can be carried out on its screen; whether reasons and "
        "answers are true was judged by the same model at most. The test for other languages knows scripts and seven "
        "European languages only."
    )


def _describe_repeatability(config: SynthConfig) -> str:
    if config.teacher is None and config.judgement is None:
        return "The same version of the environment gives the same rows, whatever is interrupted or done at once."
    if config.teacher is None:
        return "The same screens are met again; the policy's candidates are as repeatable as its engine."
    return "The same screens are met again; what the model says about them is as repeatable as its server."


def _describe_licence(head: Head, config: SynthConfig) -> str:
    screens = f"Screens, tasks and labels belong to {head.environment}; those of SimPhone are Apache-2.0, as is Collab."
    if config.teacher is None:
        return f"{screens} The replies were made by Collab itself: Apache-2.0."
    model = head.model["policy"]["base"]
    return f"{screens} The replies were written by {model}: its maker's terms say what they may be used for."


async def check_rows(rows: Sequence[Example], library: Library, *, allow_overlap: bool = False) -> list[Overlap]:
    """Compare rows with the evaluation splits of their environments.

    Args:
        library: defines the rows' environments by name; see `list_undefined` for missing ones.
        allow_overlap: return overlaps instead of raising.

    Returns:
        One overlap per environment with evaluation instances among the rows.

    Raises:
        OverlapError: a row is an evaluation instance, and `allow_overlap` is False.
        UsageError: a defined environment cannot be built.
    """
    overlaps = []
    for name in sorted(_list_environments(rows) & set(library.list_names("envs"))):
        splits = await load_splits(name, load_environment(library, name))
        mine = (row.instance for row in rows if _get_environment(row) == name)
        found = refuse_overlap(mine, list_kept_by(splits.values()), allow_overlap=allow_overlap)
        overlaps += [found] if found.offenders else []
    return overlaps


def list_undefined(rows: Sequence[Example], library: Library) -> list[str]:
    """Return the rows' environments that are not defined here and so have no splits to compare with."""
    return sorted(_list_environments(rows) - set(library.list_names("envs")))


def _list_environments(rows: Sequence[Example]) -> set[str]:
    return {_get_environment(row) for row in rows}


def _get_environment(row: Example) -> str:
    """Return the name in a label such as "androidworld[simphone]"."""
    return row.provenance.environment.partition("[")[0]
