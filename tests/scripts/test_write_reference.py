"""The reference pages say everything that the code takes, and are up to date."""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import jinja2
import jinja2.meta
import pytest
import write_reference as reference
from pydantic import BaseModel

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
from collab.envs.web.live_tasks import LiveTask
from collab.graphs.edges import SAMPLERS
from collab.library import list_presets
from collab.loop.interfaces import load_algorithm, load_method
from collab.preferences import adversary
from collab.prompts import render
from collab.rewards import llm, process_reward, reward_model
from collab.rewards.calibration.config import CalibrationConfig
from collab.rewards.verifiers import judge
from collab.rewards.verifiers.registry import VerifierDefinition
from collab.rollout.build import BUILT_IN
from collab.synthesis import llm_prompts as teacher
from collab.synthesis.config import SynthConfig
from collab.trainers.recipe import Architecture, CopyRecipe, DpoRecipe, SftRecipe

ROOT = Path(__file__).parents[2]
FOLDERS = {
    "default": render,
    "critic": llm,
    "critic-model": reward_model,
    "critic-prm": process_reward,
    "verifier": judge,
    "verifier-vision": judge,
    "verifier-model": judge,
    "adversary": adversary,
    "teacher": teacher,
}


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return reference.render_pages()


@pytest.mark.medium
def test_the_pages_are_up_to_date(pages: dict[str, str]) -> None:
    kept = {path.name: path.read_text(encoding="utf-8") for path in reference.HOME.glob("*.md")}
    assert kept == pages, "run: python scripts/write_reference.py"


@pytest.mark.parametrize(
    ("page", "models"),
    [
        ("agents.md", (AgentDefinition, SamplingDefinition, VerifierDefinition)),
        ("graphs.md", (GraphDefinition, EdgeSampler)),
        ("environments.md", (EnvironmentDefinition, Limits, Unseen, LiveTask, DeviceTask)),
    ],
)
def test_every_key_of_a_file_is_there_and_explained(
    pages: dict[str, str], page: str, models: tuple[type[BaseModel], ...]
) -> None:
    for model in models:
        for name in model.model_fields:
            rows = re.findall(rf"^\| `{name}` \|.*\| (.*) \|$", pages[page], re.MULTILINE)
            assert rows, name
            assert all(rows), name


@pytest.mark.parametrize("group", ["models", "critics", "verifiers", "adversaries", "environments"])
def test_every_kind_is_there(pages: dict[str, str], group: str) -> None:
    page = pages["environments.md" if group == "environments" else "agents.md"]
    for kind in BUILT_IN[group]:  # type: ignore[index]
        assert f"### `kind: {kind}`" in page


def test_every_sampler_and_its_parameters_are_there(pages: dict[str, str]) -> None:
    for name, sampler in SAMPLERS.items():
        row = next(line for line in pages["graphs.md"].splitlines() if line.startswith(f"| `{name}` |"))
        for one in inspect.signature(sampler).parameters.values():
            assert (f"`{one.name}`" in row) is (one.kind is one.KEYWORD_ONLY)


@pytest.mark.parametrize("folder", FOLDERS)
def test_the_variables_of_prompts_are_those_that_templates_are_given(folder: str) -> None:
    given: dict[str, set[str]] = {}
    for call in ast.walk(ast.parse(inspect.getsource(FOLDERS[folder]))):
        named = isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
        if named and call.func.attr in ("render", "_render_prompt") and call.args:  # type: ignore[attr-defined]
            first = call.args[0]  # type: ignore[attr-defined]
            name = (
                first.value if isinstance(first, ast.Constant) else getattr(FOLDERS[folder], ast.unparse(first), None)
            )
            if isinstance(name, str):
                given.setdefault(name, set()).update(one.arg for one in call.keywords if one.arg)  # type: ignore[attr-defined]
    assert given == {name: set(variables) for name, variables in reference.PROMPTS[folder]["files"].items()}


@pytest.mark.parametrize("folder", sorted(path.name for path in (ROOT / "prompts").iterdir() if path.is_dir()))
def test_built_in_prompts_use_no_other_variables(folder: str) -> None:
    usual, _ = reference.VARIANTS.get(folder, (folder, ""))
    prompt = reference.PROMPTS.get(usual, reference.PROMPTS["default"])
    own = {path.stem for path in (ROOT / "prompts" / folder).glob("*.jinja")}
    is_part = folder in reference.VARIANTS or folder in {"m3a", "pocket", "seeact"}
    assert own == set(prompt["files"]) or (is_part and own < set(prompt["files"]))
    for name in own:
        variables = prompt["files"][name]
        text = (ROOT / "prompts" / folder / f"{name}.jinja").read_text(encoding="utf-8")
        used = jinja2.meta.find_undeclared_variables(jinja2.Environment(autoescape=True).parse(text))
        assert used <= {*variables, *prompt.get("every", ())}, name


SETTINGS: dict[str, type[BaseModel]] = {
    "A run": RunConfig,
    **{f"A training by {name}": load_algorithm(name).method for name in BUILT_IN["algorithms"]},
    "A synthesis": SynthConfig,
    "A calibration": CalibrationConfig,
    "A new checkpoint": Architecture,
}
STAGES: dict[str, type[BaseModel]] = {"sft": SftRecipe, "dpo": DpoRecipe, "copy": CopyRecipe}


def section(page: str, title: str) -> dict[str, str]:
    """Setting → what stands in its last column."""
    text = re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert text, title
    return dict(re.findall(r"^\| `([^`]+)` \|.*\| (.*) \|$", text.group(1), re.MULTILINE))


def leaves(name: str, value: object) -> set[str]:
    """Dotted paths of a value as it is written to a file."""
    if not isinstance(value, dict) or not value:
        return {name}
    return {path for key, inner in value.items() for path in leaves(f"{name}.{key}", inner)}


@pytest.mark.parametrize("title", SETTINGS)
def test_every_setting_is_there_and_explained(pages: dict[str, str], title: str) -> None:
    rows = section(pages["settings.md"], title)
    for name in SETTINGS[title].model_fields:
        assert any(re.match(rf"{name}(\.|$)", path) for path in rows), name
    assert [path for path, meaning in rows.items() if not meaning.strip()] == []


@pytest.mark.parametrize("stage", STAGES)
def test_every_setting_of_a_recipe_is_there_and_explained(pages: dict[str, str], stage: str) -> None:
    text = pages["settings.md"]
    rows = section(text, "A fine-tuning") | section(text, f"A fine-tuning, {stage}")
    for name in STAGES[stage].model_fields:
        assert any(re.match(rf"{name}(\.|$)", path) for path in rows), name
    assert [path for path, meaning in rows.items() if not meaning.strip()] == []


@pytest.mark.parametrize("name", BUILT_IN["algorithms"])
def test_whatever_a_preset_sets_can_be_looked_up(pages: dict[str, str], name: str) -> None:
    """Of each algorithm, down to the fields of its recipe."""
    algorithm, rows = load_algorithm(name), section(pages["settings.md"], f"A training by {name}")
    for preset in list_presets(algorithm.presets):
        found = load_method(algorithm, preset).model_dump(mode="json")
        for path in {one for key, value in found.items() for one in leaves(key, value)}:
            assert any(path == row or path.startswith(f"{row}.") or row.startswith(f"{path}.") for row in rows), path


def test_every_setting_of_a_run_is_there(pages: dict[str, str]) -> None:
    text = pages["settings.md"]
    for name in RunConfig.model_fields:
        assert re.search(rf"^\| `{name}[.`]", text, re.MULTILINE), name
    for path in ("agents.*.sampling.temperature", "environment.limits.step_s", "graph.rounds", "dpo.beta"):
        assert f"| `{path}` |" in text
