"""Write docs/reference: every key of the files that a user writes, and every setting that `--set` takes.

    python scripts/write_reference.py            # write the pages
    python scripts/write_reference.py --check    # exit code 1 when one is not up to date

Keys, types, limits and defaults come from the pydantic models, options of kinds from the constructors' signatures and
docstrings, samplers from their functions. The words around the tables are `docs/reference/*.md.jinja`; the variables of
prompts are described in `prompts.yaml` beside them, and a test holds that they are the ones that templates are given.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args

import jinja2
import yaml
from pydantic import BaseModel
from tokenizers import Tokenizer

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
from collab.envs.grammar import SPACES
from collab.envs.simphone.distractions.presets import Distractions
from collab.envs.simphone.suite import SimPhoneSuite
from collab.envs.web.live_tasks import LiveTask
from collab.envs.web.live_tasks import PageSuccess as LiveSuccess
from collab.graphs.edges import SAMPLERS
from collab.library import parse_yaml
from collab.loop.interfaces import load_algorithm
from collab.models.tokenizer import estimate_tokens
from collab.prompts.render import Templates
from collab.rewards.calibration.config import CalibrationConfig
from collab.rewards.verifiers.registry import VerifierDefinition
from collab.rollout.build import BUILT_IN, Group
from collab.synthesis.config import SynthConfig
from collab.trainers.recipe import Architecture, CopyRecipe, DpoRecipe, Recipe, SftRecipe
from collab.trainers.vision_tower import VisionTower
from collab.utils import docs
from collab.utils.text import format_markdown_table

ROOT = Path(__file__).parents[1]
HOME = ROOT / "docs" / "reference"
_HEAD = "<!-- Written by scripts/write_reference.py; change the code or the script, not this page. -->\n"
_FROM_ELSEWHERE = {"model", "scorer", "texts", "sampling", "seed", "attempt", "call_s", "history", "context_tokens"}
"""Parameters of judges and adversaries that no option gives: other keys of their file do, or the command."""

PROMPTS: Mapping[str, Any] = yaml.safe_load((HOME / "prompts.yaml").read_text(encoding="utf-8"))
"""Folder in prompts/ → what the page says of it."""
VARIANTS: Mapping[str, tuple[str, str]] = {
    "guided": ("default", "general guidance for policies"),
    "critic-guided": ("critic", "general guidance for the critic"),
    "critic-few-shot": ("critic", "general guidance and three demonstrations of judgements"),
    "critic-prm-guided": ("critic-prm", "criteria of right and wrong, and two examples (Android Coach, figure 10)"),
    "adversary-guided": ("adversary", "the rules that a clumsy agent breaks"),
}
"""Folder in prompts/ → the folder whose prompt it replaces, and what it adds."""


# ----------------------------------------------------------------------------------------------------- kinds


def keys_table(model: type[BaseModel], like: type[BaseModel] | None = None) -> str:
    """Return a table of a model's keys; arguments as of `list_keys`."""
    return table(("key", "type", "default", "what it is"), docs.list_keys(model, like))


def kinds_of(group: Group, level: str = "###") -> str:
    """Return a section for each built-in kind of a group, with its options."""
    parts = []
    for kind in BUILT_IN[group]:
        made = _load_kind(group, kind)
        parts.append(f"{level} `kind: {kind}`\n\n{docs.summarise(made)}\n\n{options_table(made, group)}")
    return "\n".join(parts)


def _load_kind(group: Group, kind: str) -> Callable[..., Any]:
    module, _, name = BUILT_IN[group][kind].partition(":")
    made: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return made


def options_table(made: Callable[..., Any], group: Group) -> str:
    """Return a table of what a class takes as `options`."""
    meanings, rows = docs.argument_docs(inspect.getdoc(made) or ""), []
    if made is SimPhoneSuite:  # single knobs of its preset
        meanings = {name: text for name, (_, text) in docs.attribute_docs(Distractions).items()} | meanings
    for parameter in inspect.signature(made).parameters.values():
        outside = group in ("critics", "verifiers", "adversaries") and parameter.name in _FROM_ELSEWHERE
        if outside or parameter.kind is parameter.VAR_KEYWORD:
            continue
        needed = parameter.default is parameter.empty
        default = "needed" if needed else f"`{docs.format_yaml(parameter.default)}`"
        rows.append(
            (f"`{parameter.name}`", f"`{_option_kind(made, parameter)}`", default, meanings.get(parameter.name, ""))
        )
    return table(("option", "type", "default", "what it is"), rows) if rows else "It takes no options.\n"


def _option_kind(made: Callable[..., Any], parameter: inspect.Parameter) -> str:
    """The type of an option, with the words that it may be where its module names them."""
    known = vars(importlib.import_module(made.__module__))

    def spell_out(word: re.Match[str]) -> str:
        choices = get_args(known.get(word.group()))
        return f"Literal[{', '.join(map(repr, choices))}]" if choices else word.group()

    return docs.format_type(re.sub(r"[A-Z]\w+", spell_out, str(parameter.annotation)))


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table as a paragraph of its own."""
    return format_markdown_table(heads, rows) + "\n"


def definitions_table(room: str) -> str:
    """Return the built-in definitions of a room with what they say of themselves."""
    rows = []
    for path in sorted((ROOT / room).glob("*.yaml")):
        data = parse_yaml(path.read_text(encoding="utf-8"), str(path)).data
        rows.append((f"[`{path.stem}`](../../{room}/{path.name})", " ".join(str(data.get("description", "")).split())))
    return table(("name", "what it is"), rows)


def options_of(group: Group, kind: str) -> str:
    """Return a table of the options of one kind."""
    return options_table(_load_kind(group, kind), group)


def samplers_table() -> str:
    """Return a table of the samplers of edges and their parameters."""
    rows = []
    for name, sampler in SAMPLERS.items():
        needed = [one for one in inspect.signature(sampler).parameters.values() if one.kind is one.KEYWORD_ONLY]
        takes = ", ".join(
            f"`{one.name}`" + (" (needed)" if one.default is one.empty else f" (`{one.default}` unless given)")
            for one in needed
        )
        rows.append((f"`{name}`", takes or "none", " ".join(docs.summarise(sampler).split())))
    return table(("sampler", "parameters", "edges"), rows)


def variables_table(prompt: Mapping[str, Any]) -> str:
    """Return a table of the variables of a folder's templates."""
    rows = []
    for name, variables in prompt["files"].items():
        every = {} if name == "system" else prompt.get("every", {})
        rows += [(f"`{name}.jinja`", f"`{variable}`", text) for variable, text in {**variables, **every}.items()]
    return table(("file", "variable", "what it is"), rows)


def variants_table() -> str:
    """Return a table of prompts with more words than the usual ones, and the tokens of the part that differs."""
    tokenizer = Tokenizer.from_file(str(ROOT / "agents/pocket/tokenizer.json"))
    rows = []
    for folder, (usual, what) in VARIANTS.items():
        (part,) = (path.stem for path in (ROOT / "prompts" / folder).glob("*.jinja"))
        before, after = (_render_part(name, part) for name in (usual, folder))
        counts = [(len(tokenizer.encode(text).ids), estimate_tokens(text)) for text in (before, after)]
        tokens = [f"{old:,} → {new:,}" for old, new in zip(*counts, strict=True)]
        rows.append((f"`{folder}`", f"`{usual}`", what, f"`{part}.jinja`", *tokens))
    heads = ("prompt", "in place of", "what is added", "file", "tokens, pocket", "tokens, estimate")
    return table(heads, rows)


def _render_part(folder: str, part: str) -> str:
    """Return a template of a folder as it is filled in on a phone."""
    texts = {part: (ROOT / "prompts" / folder / f"{part}.jinja").read_text(encoding="utf-8")}
    values = {"system": {"world": "a phone", "actions": SPACES["mobile"].listing(), "right": "", "wrong": ""}}
    return Templates(folder, texts, [part]).render(part, **values.get(part, {"right": "", "actions": ""}))


def settings_table(model: type[BaseModel], beside: type[BaseModel] | None = None) -> str:
    """Return a table of what `--set` takes.

    Args:
        model: of the settings.
        beside: a model whose settings are left out.
    """
    shared = set() if beside is None else set(docs.list_settings(beside))
    own = (row for row in docs.list_settings(model) if row not in shared)
    rows = [tuple("given" if cell == "needed" else cell for cell in row) for row in own]
    return table(("setting", "type", "default", "what it is"), rows)


MODELS = (
    *(AgentDefinition, VerifierDefinition, SamplingDefinition, GraphDefinition, EdgeSampler),
    *(EnvironmentDefinition, Limits, Unseen, DeviceTask, LiveTask, RunConfig, SynthConfig, CalibrationConfig),
    *(Recipe, SftRecipe, DpoRecipe, CopyRecipe, Architecture, VisionTower),
)
"""That pages name."""
TABLES = (
    keys_table,
    kinds_of,
    options_of,
    samplers_table,
    definitions_table,
    variables_table,
    variants_table,
    settings_table,
)


def render_pages() -> dict[str, str]:
    """Return the text of every page by its file name."""
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined, trim_blocks=True, loader=jinja2.FileSystemLoader(HOME), autoescape=False
    )
    environment.globals |= {one.__name__: one for one in (*MODELS, *TABLES)}
    environment.globals |= {"DeviceSuccess": DeviceSuccess, "LiveSuccess": LiveSuccess, "prompts": PROMPTS}
    environment.globals["algorithms"] = {name: load_algorithm(name).method for name in BUILT_IN["algorithms"]}
    pages = {path.stem: environment.get_template(path.name).render() for path in sorted(HOME.glob("*.md.jinja"))}
    return {name: _HEAD + re.sub(r"\n{3,}", "\n\n", text).rstrip() + "\n" for name, text in pages.items()}


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
