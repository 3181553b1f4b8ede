"""Write docs/reference: every key of the files that a user writes, and every setting that `--set` takes.

    python scripts/write_reference.py            # write the pages
    python scripts/write_reference.py --check    # exit code 1 when one is not up to date

Keys, types, limits and defaults come from the pydantic models, options of kinds from the constructors' signatures and
docstrings, samplers from their functions. Only the variables of prompts are described here (`VARIABLES`); a test holds
that they are the ones that templates are given.
"""

from __future__ import annotations

import argparse
import ast
import functools
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from collab.config import (
    AgentDefinition,
    EdgeSampler,
    EnvironmentDefinition,
    GraphDefinition,
    Limits,
    RunConfig,
    SamplingDefinition,
    Unseen,
)
from collab.envs.android.device_tasks import DeviceTask
from collab.envs.android.device_tasks import ScreenSuccess as DeviceSuccess
from collab.envs.simphone.distractions.presets import Distractions
from collab.envs.simphone.suite import SimPhoneSuite
from collab.envs.web.live_tasks import LiveTask
from collab.envs.web.live_tasks import PageSuccess as LiveSuccess
from collab.graphs.edges import SAMPLERS
from collab.library import parse_yaml
from collab.loop.interfaces import load_algorithm
from collab.rewards.calibration.config import CalibrationConfig
from collab.rollout.build import BUILT_IN, Group
from collab.synthesis.config import SynthConfig
from collab.trainers.recipe import Architecture, CopyRecipe, DpoRecipe, Recipe, SftRecipe

ROOT = Path(__file__).parents[1]
HOME = ROOT / "docs" / "reference"
_HEAD = "<!-- Written by scripts/write_reference.py; change the code or the script, not this page. -->\n"
_FROM_ELSEWHERE = {"model", "scorer", "texts", "sampling", "seed", "attempt", "call_s", "history", "context_tokens"}
"""Parameters of critics and adversaries that no option gives: other keys of their file do, or the command."""

_WHO = {"world": '"a phone" or "a web page"', "actions": "list of the actions, one a line"}
_STEP = {
    "goal": "the task in words",
    "summary": "the policy's own summary; empty when none is kept",
    "history": "executed steps, oldest first, each with `number`, `action`, `effect`, and often `reason`",
}
_SCREEN = {"screen": "the screen, one element a line"}
_CELL = {"agent": "slot that speaks", "round": "from 1"}
VARIABLES: Mapping[str, Mapping[str, Mapping[str, str]]] = {
    "default": {
        "system": _WHO,
        "shared": {**_STEP, "screen": "the screen, one element a line; empty where only a picture is shown"},
        "message": {**_CELL, "message": "what that agent said; must stand in the text"},
        "header": {**_CELL, "rounds": "how many there are"},
        "summary": _STEP,
        "question": {**_SCREEN, "question": "asked in words; must stand in the text"},
    },
    "critic": {"system": _WHO, "step": {**_STEP, **_SCREEN, "proposals": "lines to be scored"}},
    "critic-model": {
        "system": {"world": _WHO["world"]},
        "state": {**_STEP, **_SCREEN},
        "action": {"words": "the action in words", "written": "the action as a reply writes it"},
    },
    "adversary": {
        "clumsy": {"right": "the right action in words", "actions": "list of the actions; empty where it was told"}
    },
    "teacher": {
        "system": _WHO,
        "screen": {**_SCREEN, "questions": "each with `number` and `text`"},
        "instructions": {
            **_SCREEN,
            "count": "how many are wanted",
            "complete": "how an end is written",
            "answer": "how an answer is written",
        },
        "act": {"state": "task, what was done, screen"},
        "clumsy": {"state": "task, what was done, screen", "right": "the right step in words"},
        "critic": {"state": "task, what was done, screen", "proposals": "each with `id`, `action`, `reason`"},
    },
}
"""Folder in prompts/ → file, without .jinja → variable → what it is. All files of a teacher but `system` get `form`."""
FORM = {"form": "how an action is written"}
_USED_BY = {
    "default": "What agents are told. Any folder with these six files can be named by `prompt:` of an agents file.",
    "critic": "What a language model is told that scores actions (kind `llm` of a critic).",
    "critic-model": "What a reward model reads (kind `model` of a critic).",
    "adversary": "What a language model is told that proposes wrong actions (`collab pairs`, kind `llm`).",
    "teacher": "What `collab synth --teacher` tells its model.",
}


# ---------------------------------------------------------------------------------------------------- models


@functools.cache
def attribute_docs(model: type) -> dict[str, tuple[str, str]]:
    """Return the annotation of each attribute of a class and its bases, and what stands under it, on one line."""
    found: dict[str, tuple[str, str]] = {}
    for kind in reversed(model.__mro__):
        if kind.__module__.partition(".")[0] != "collab":
            continue
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
        lines = body.body if isinstance(body, ast.ClassDef) else []
        for line, after in zip(lines, [*lines[1:], None], strict=True):
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                doc = after.value if isinstance(after, ast.Expr) else None
                text = " ".join(str(doc.value).split()) if isinstance(doc, ast.Constant) else ""
                found[line.target.id] = ast.unparse(line.annotation), text
    return found


def keys_table(model: type[BaseModel], like: type[BaseModel] | None = None) -> str:
    """Return a table of a model's keys.

    Args:
        like: another model that says what keys of the same names are, where this one does not.
    """
    docs, others = attribute_docs(model), attribute_docs(like) if like is not None else {}
    rows = [
        (f"`{name}`", _kind(docs[name][0], field), _default(field), docs[name][1] or others.get(name, ("", ""))[1])
        for name, field in model.model_fields.items()
    ]
    return table(("key", "type", "default", "what it is"), rows)


def settable(
    model: type[BaseModel], prefix: str = "", around: tuple[type[BaseModel], ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Yield every setting of a model as a dotted path, nested models' among them: path, type, default, meaning."""
    docs = attribute_docs(model)
    for name, field in model.model_fields.items():
        inner, star = _nested(field)
        path = f"{prefix}{name}{star}"
        if inner is None or inner in (model, *around):
            yield f"`{path}`", _kind(docs[name][0], field), _default(field), docs[name][1]
        else:
            yield from settable(inner, f"{path}.", (model, *around))


def _nested(field: FieldInfo) -> tuple[type[BaseModel] | None, str]:
    """The model that a field holds, by name where it is a mapping of them."""
    text = str(field.annotation)
    models = [one for one in _parts_of(field.annotation) if isinstance(one, type) and issubclass(one, BaseModel)]
    if len(models) != 1 or "list[" in text:
        return None, ""
    return models[0], ".*" if "dict[" in text or "Mapping[" in text else ""


def _parts_of(annotation: Any) -> Iterator[Any]:
    yield annotation
    for one in getattr(annotation, "__args__", ()):
        yield from _parts_of(one)


def _kind(annotation: str, field: FieldInfo) -> str:
    bounds = [_bound(one) for one in field.metadata]
    return f"`{_plain(annotation)}`" + "".join(f", {bound}" for bound in bounds if bound)


_ALIASES = {"Temperature": "float", "Name": "str", "RunName": "str"}
"""Names that stand for a type with limits."""


def _plain(text: str) -> str:
    """A type as one says it: without the limits that it carries."""
    text = re.sub(r"Annotated\[(\w+), Field\(.*?\)\]", r"\1", text)
    return re.sub(r"\w+", lambda word: _ALIASES.get(word.group(), word.group()), text).replace("'", '"')


def _bound(one: Any) -> str:
    signs = {annotated_types.Ge: "≥", annotated_types.Gt: ">", annotated_types.Le: "≤", annotated_types.Lt: "<"}
    for kind, sign in signs.items():
        if isinstance(one, kind):
            return f"{sign} {getattr(one, kind.__name__.lower()):g}"
    return "not empty" if isinstance(one, annotated_types.MinLen) else ""


def _default(field: FieldInfo) -> str:
    value = field.get_default(call_default_factory=True) if not field.is_required() else PydanticUndefined
    if value is PydanticUndefined:
        return "needed"
    return "as below" if isinstance(value, BaseModel) else f"`{_yaml(value)}`"


def _yaml(value: Any) -> str:
    names = {None: "null", True: "true", False: "false"}
    if isinstance(value, bool) or value is None:
        return names[value]
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_yaml(one) for one in value) + "]"
    return '""' if value == "" else str(value)


# ----------------------------------------------------------------------------------------------------- kinds


def kinds_of(group: Group, level: str = "###") -> str:
    """Return a section for each built-in kind of a group, with its options."""
    parts = []
    for kind, target in BUILT_IN[group].items():
        module, _, name = target.partition(":")
        made = getattr(importlib.import_module(module), name)
        said = inspect.getdoc(made) or ""
        parts.append(f"{level} `kind: {kind}`\n\n{said.partition(chr(10) * 2)[0]}\n\n{options_table(made, group)}")
    return "\n".join(parts)


def options_table(made: Callable[..., Any], group: Group) -> str:
    """Return a table of what a class takes as `options`."""
    docs, rows = argument_docs(inspect.getdoc(made) or ""), []
    if made is SimPhoneSuite:  # single knobs of its preset
        docs = {name: text for name, (_, text) in attribute_docs(Distractions).items()} | docs
    for parameter in inspect.signature(made).parameters.values():
        outside = group in ("critics", "adversaries") and parameter.name in _FROM_ELSEWHERE
        if outside or parameter.kind is parameter.VAR_KEYWORD:
            continue
        needed = parameter.default is parameter.empty
        default = "needed" if needed else f"`{_yaml(parameter.default)}`"
        rows.append(
            (f"`{parameter.name}`", f"`{_option_kind(made, parameter)}`", default, docs.get(parameter.name, ""))
        )
    return table(("option", "type", "default", "what it is"), rows) if rows else "It takes no options.\n"


def _option_kind(made: Callable[..., Any], parameter: inspect.Parameter) -> str:
    """The type of an option, with the words that it may be where its module names them."""
    known = vars(importlib.import_module(made.__module__))

    def spelt(word: re.Match[str]) -> str:
        choices = get_args(known.get(word.group()))
        return f"Literal[{', '.join(map(repr, choices))}]" if choices else word.group()

    return _plain(re.sub(r"[A-Z]\w+", spelt, str(parameter.annotation)))


def argument_docs(doc: str) -> dict[str, str]:
    """Return what the section "Args" of a docstring says of each argument."""
    section = re.search(r"^Args:\n((?:[ \t]+.*\n?|\n)+)", doc, re.MULTILINE)
    found: dict[str, str] = {}
    names: list[str] = []
    for line in section.group(1).splitlines() if section else ():
        begun = re.match(r"    (\w+(?:, \w+)*): (.*)", line)
        if begun:
            names = begun.group(1).split(", ")
            found |= dict.fromkeys(names, begun.group(2))
        else:
            found |= {name: f"{found[name]} {line.strip()}".strip() for name in names}
    return found


def table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |\n" for line in lines)


def definitions_table(room: str) -> str:
    """Return the built-in definitions of a room with what they say of themselves."""
    rows = []
    for path in sorted((ROOT / room).glob("*.yaml")):
        data = parse_yaml(path.read_text(encoding="utf-8"), str(path)).data
        rows.append((f"[`{path.stem}`](../../{room}/{path.name})", " ".join(str(data.get("description", "")).split())))
    return table(("name", "what it is"), rows)


# ----------------------------------------------------------------------------------------------------- pages


def agents_page() -> str:
    """Return the page of agents files."""
    return f"""# Agents files

`agents/NAME.yaml`: who speaks in a slot, or judges. `--agents NAME` takes one for all slots, `--agents a=X,b=Y` one for
each. Your own lie in `DIR/agents/` (`--library DIR`), or are named by their path. `collab agents check NAME` asks
whether one works.

```yaml
kind: openai
options: {{model: my-model, base_url: "http://127.0.0.1:8000/v1"}}
sampling: {{temperature: [0.1, 0.3, 0.5, 0.8], max_tokens: 256}}
```

{keys_table(AgentDefinition)}
Under `sampling`:

{keys_table(SamplingDefinition)}
## Kinds that speak

A kind is one of these, the name of an installed entry point (`collab.models`), or `package.module:Class`.

{kinds_of("models")}
## Kinds that judge

An agents file of one of these kinds is a critic (`--critic NAME`); it never fills a slot. `llm` asks the model that its
option `model: {{kind: …, options: …}}` describes; `model` takes the options of a reward model. `prompt`, `sampling`,
`history` and `context_tokens` of the file count, too.

{kinds_of("critics")}
### The reward model of `kind: model`

{options_table(_made("scorers", "model"), "scorers")}
## Kinds that propose wrong actions

Adversaries of `collab pairs` and of a method's `pairs`.

{kinds_of("adversaries")}
## Built in

{definitions_table("agents")}"""


def _made(group: Group, kind: str) -> Callable[..., Any]:
    module, _, name = BUILT_IN[group][kind].partition(":")
    made: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return made


def graphs_page() -> str:
    """Return the page of graph files."""
    samplers = []
    for name, sampler in SAMPLERS.items():
        needed = [one for one in inspect.signature(sampler).parameters.values() if one.kind is one.KEYWORD_ONLY]
        takes = ", ".join(
            f"`{one.name}`" + (" (needed)" if one.default is one.empty else f" (`{one.default}` unless given)")
            for one in needed
        )
        said = " ".join((inspect.getdoc(sampler) or "").partition("\n\n")[0].split())
        samplers.append((f"`{name}`", takes or "none", said))
    return f"""# Graph files

`graphs/NAME.yaml`: the slots of a team and who hears whom. `--graph NAME` takes one. Your own lie in `DIR/graphs/`
(`--library DIR`), or are named by their path. `collab graph show NAME` draws one, `collab graph validate` looks for
mistakes.

```yaml
slots: [ada, ben, cyd]
rounds: 2
edges: {{sampler: ordered, p: 0.5}} # or a list of pairs: [[ada, ben], [ben, cyd]]
rewire: task
```

{keys_table(GraphDefinition)}
A drawn graph has under `edges`:

{keys_table(EdgeSampler)}
## Samplers

{table(("sampler", "parameters", "edges"), samplers)}
## Built in

{definitions_table("graphs")}"""


def environments_page() -> str:
    """Return the page of environment files."""
    return f"""# Environment files

`envs/NAME.yaml`: where a team acts. `--env NAME` takes one. Your own lie in `DIR/envs/` (`--library DIR`), or are named
by their path. `collab env tasks NAME` lists what one plays, `collab env check NAME` proves what it promises.

```yaml
backend: pages
backends:
  pages: {{kind: web, options: {{tasks: my-tasks.yaml, allow_hosts: [shop.example]}}}}
tasks: all
```

{keys_table(EnvironmentDefinition)}
Each of `backends` has a `kind` and its `options`. Under `limits`:

{keys_table(Limits)}
Under `unseen`:

{keys_table(Unseen)}
## Kinds

A kind is one of these, the name of an installed entry point (`collab.environments`), or `package.module:Class`.

{kinds_of("environments")}
## Tasks on web pages

The option `tasks` of `kind: web` is such a list, or the path of a file with the key `tasks` that holds it. The file is
looked up beside the definition, then in the current folder; it may lie in `envs/`.

{keys_table(LiveTask, like=DeviceTask)}
Under `success`:

{keys_table(LiveSuccess)}
## Tasks on devices

The option `tasks` of `kind: device`, in the same way.

{keys_table(DeviceTask)}
Under `success`:

{keys_table(DeviceSuccess)}
## Built in

{definitions_table("envs")}"""


def prompts_page() -> str:
    """Return the page of prompts."""
    parts = []
    for folder, files in VARIABLES.items():
        more = FORM if folder == "teacher" else {}
        rows = []
        for name, variables in files.items():
            told = variables if name == "system" else {**variables, **more}
            rows += [(f"`{name}.jinja`", f"`{variable}`", said) for variable, said in told.items()]
        parts.append(
            f"## `prompts/{folder}`\n\n{_USED_BY[folder]}\n\n{table(('file', 'variable', 'what it is'), rows)}"
        )
    return f"""# Prompts

`prompts/NAME/`: [Jinja](https://jinja.palletsprojects.com/en/stable/templates/) templates, one a file. Your own lie in
`DIR/prompts/NAME/` (`--library DIR`); an agents file names its folder with `prompt: NAME`. A variable that a template
is not given is an error that names it. `prompts/pocket` has the files of `prompts/default`.

A run keeps the texts of its prompts, so later changes of the files do not touch it.

{chr(10).join(parts)}"""


_SETTINGS: tuple[tuple[str, str, type[BaseModel]], ...] = (
    (
        "A run",
        "`collab rollout`, `collab eval`; `collab agents check` and `collab env check` take the parts of theirs.",
        RunConfig,
    ),
    *(
        (
            f"A training by {name}",
            f"`collab train --algo {name}`, `collab transfer --algo {name}`, `collab verify-resume --algo {name}`; "
            "settings of its runs may begin with `run.`.",
            load_algorithm(name).method,
        )
        for name in BUILT_IN["algorithms"]
    ),
    ("A synthesis", "`collab synth`.", SynthConfig),
    ("A fine-tuning", "`collab finetune`, all stages.", Recipe),
    ("A fine-tuning, sft", "`collab finetune --stage sft`, beside those of all stages.", SftRecipe),
    ("A fine-tuning, dpo", "`collab finetune --stage dpo`, beside those of all stages.", DpoRecipe),
    ("A fine-tuning, copy", "`collab finetune --stage copy`, beside those of all stages.", CopyRecipe),
    ("A calibration", "`collab critic`; settings of the critic's own file begin with `critic.`.", CalibrationConfig),
    ("A new checkpoint", "`collab checkpoint new`.", Architecture),
)


def settings_page() -> str:
    """Return the page of `--set`."""
    parts = []
    for title, commands, model in _SETTINGS:
        shared = set(settable(Recipe)) if model in (SftRecipe, DpoRecipe, CopyRecipe) else set()
        found = [row for row in settable(model) if row not in shared]
        rows = [tuple("given" if cell == "needed" else cell for cell in row) for row in found]
        parts.append(f"## {title}\n\n{commands}\n\n{table(('setting', 'type', 'default', 'what it is'), rows)}")
    return f"""# `--set`

`--set a.b=value` overrides one setting; it may be repeated, and later ones win. The value is read as YAML: `3`, `0.5`,
`true`, `null`, `[1, 2]`, `text`. A `*` stands for every name: `agents.*.history=3` is meant for all slots,
`agents.ada.history=3` for one. Options of a kind are set by their name, whatever the file says:
`environment.backends.simphone.options.preset=daily`, `agents.*.options.path=DIR`; the pages of
[agents](agents.md) and [environments](environments.md) list them.

```console
$ collab rollout --env androidworld --set graph.rounds=2 --set 'agents.*.sampling.temperature=0'
```

What a setting cannot be is refused with what is allowed, before anything is played. Where the default is "given", a
file or an option of the command says it.

{chr(10).join(parts)}"""


PAGES: Mapping[str, Callable[[], str]] = {
    "agents.md": agents_page,
    "graphs.md": graphs_page,
    "environments.md": environments_page,
    "prompts.md": prompts_page,
    "settings.md": settings_page,
}


def render_pages() -> dict[str, str]:
    """Return the text of every page by its file name."""
    return {name: _HEAD + re.sub(r"\n{3,}", "\n\n", page()).rstrip() + "\n" for name, page in PAGES.items()}


def main() -> int:
    """Write the pages, or check that they are up to date."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit code 1 when a page is not up to date")
    check = parser.parse_args().check
    stale = []
    HOME.mkdir(parents=True, exist_ok=True)
    for name, text in render_pages().items():
        path = HOME / name
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if not check:
                path.write_text(text, encoding="utf-8")
    sys.stdout.write(f"{'not up to date' if check else 'written'}: {', '.join(stale) or 'none'}\n")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
