"""Prompts: what is shared, what stands at the end, what the size guard takes away."""

from __future__ import annotations

from pathlib import Path

import pytest

from collab.envs.grammar import MOBILE, WEB
from collab.envs.text import describe_screen
from collab.errors import ConfigError, ModelFailure
from collab.library import find_builtin_root
from collab.prompts.render import PromptContext, Template, build_prefix, fit_shared, read_templates, rebuild
from collab.types import (
    Element,
    HistoryEntry,
    Observation,
    ParseFailure,
    PolicyRef,
    Prompt,
    PromptRef,
    Sampling,
    Utterance,
)


@pytest.fixture(scope="module")
def template() -> Template:
    return Template("default", read_templates(find_builtin_root() / "prompts" / "default"))


def context(elements: int = 5, steps: int = 0, goal: str = "Turn wifi off.") -> PromptContext:
    things = tuple(Element(index=i, role="button", label=f"Thing number {i}") for i in range(elements))
    observation = Observation(
        space="mobile", title="Settings", elements=things, text=describe_screen("Settings", things)
    )
    history = tuple(
        HistoryEntry(action=f'tap button "B{t}"', reason=f"why {t}", effect=f"opened {t}") for t in range(steps)
    )
    return PromptContext(goal=goal, space=MOBILE, observation=observation, history=history)


def utterance(agent: str, round: int, text: str, tokens: tuple[int, ...] | None = None) -> Utterance:
    return Utterance(
        agent=agent,
        round=round,
        heard=(),
        text=text,
        reason="",
        action=None,
        failure=ParseFailure(kind="no_action", detail=""),
        prompt=PromptRef(prefix="", suffix="", layout="1"),
        policy=PolicyRef(base="test"),
        sampling=Sampling(),
        seed=0,
        tokens=tokens,
        tokenizer=None if tokens is None else "t",
    )


def words(text: str) -> int:
    return len(text.split())


def test_system_lists_every_action_that_is_for_it(template: Template) -> None:
    for space in (MOBILE, WEB):
        system = template.render_system(space)
        assert all(spec.name in system for spec in space.listed_specs)
        assert "press_keys" in space.types
        assert "press_keys" not in system
    assert "{" in template.render_system(MOBILE)
    assert "click(id=N)" in template.render_system(WEB)


def test_shared_part_tells_task_history_and_screen(template: Template) -> None:
    text = template.render_shared(context(steps=7), history=5, lines=None, screen=True)
    assert text.startswith("Task: Turn wifi off.\n")
    assert 'tap button "B1"' not in text, "only the last five"
    assert '3. tap button "B2" -> opened 2 (because: why 2)\n' in text
    assert 'button "Thing number 4" [4]' in text
    assert text.endswith("\n")
    assert "\n\n\n" not in text


def test_without_history_nothing_is_said_of_it(template: Template) -> None:
    assert "Done before" not in template.render_shared(context(), history=5, lines=None, screen=True)


def test_segments_are_messages_in_order_then_the_header(template: Template) -> None:
    heard = [utterance("ada", 0, "I say\nthis", tokens=(1, 2)), utterance("ben", 1, "{% raw %}")]
    segments = template.render_segments("cyd", 1, 3, heard)
    text = "".join(segment.text for segment in segments)
    assert text.index("[ada, round 1]") < text.index("I say\nthis") < text.index("[ben, round 2]")
    assert "{% raw %}" in text, "a message is data, never a template"
    assert segments[-1].text.strip().startswith("You are cyd. Round 2 of 3.")
    said = [segment for segment in segments if segment.text == "I say\nthis"]
    assert said[0].tokens == (1, 2), "a message stands in the tokens in which it was generated"


def test_cells_that_heard_the_same_differ_in_the_header_only(template: Template) -> None:
    heard = [utterance("ada", 0, "down"), utterance("ben", 0, "up")]
    one, two = template.render_segments("cyd", 0, 3, heard), template.render_segments("dan", 0, 3, heard)
    assert one[:-1] == two[:-1]
    assert one[-1] != two[-1]
    more = template.render_segments("dan", 0, 3, [*heard, utterance("cyd", 0, "left")])
    assert more[: len(one) - 1] == one[:-1], "hearing more only adds at the end"


def test_a_stored_prompt_is_rebuilt_byte_for_byte(template: Template) -> None:
    shared = fit_shared(template, context(steps=2), history=5, limit=10_000, count=words)
    segments = template.render_segments("ada", 0, 3, [utterance("ben", 0, "weiß\u2028ich")])
    prompt = Prompt(system=shared.system, shared=shared.text, segments=segments)
    reference = PromptRef(prefix=shared.prefix, suffix=prompt.suffix, layout=prompt.layout)
    again = rebuild(build_prefix(shared.system, shared.text), reference)
    assert (again.system, again.user) == (prompt.system, prompt.user)


def test_guard_shortens_history_first(template: Template) -> None:
    whole = fit_shared(template, context(steps=5), history=5, limit=10_000, count=words)
    assert whole.trimmed == ()
    size = words(whole.system) + words(whole.text)
    less = fit_shared(template, context(steps=5), history=5, limit=size - 1, count=words)
    assert less.trimmed == ("history:1",)
    assert less.system == whole.system
    assert "Thing number 4" in less.text


def test_guard_then_drops_far_elements_and_says_so(template: Template) -> None:
    scene = context(elements=200, steps=3)
    system = words(template.render_system(MOBILE))
    cut = fit_shared(template, scene, history=5, limit=system + 300, count=words)
    assert cut.trimmed[0] == "history:3"
    assert cut.trimmed[1].startswith("elements:")
    assert words(cut.system) + words(cut.text) <= system + 300
    assert "more lines are not shown" in cut.text
    assert "Thing number 0" in cut.text
    assert "Thing number 199" not in cut.text


def test_a_text_is_counted_only_if_its_bytes_are_more_than_the_limit(template: Template) -> None:
    """A count may be a call to another process."""
    counted: list[str] = []

    def count(text: str) -> int:
        counted.append(text)
        return len(text)

    scene, system = context(goal="Schließe Ä. " * 20, steps=2), template.render_system(MOBILE)
    text = template.render_shared(scene, history=5, lines=None, screen=True)
    size = len(text.encode())
    assert fit_shared(template, scene, history=5, limit=len(system) + size, count=count).trimmed == ()
    assert counted == [system]
    assert fit_shared(template, scene, history=5, limit=len(system) + size - 1, count=count).trimmed == ()
    assert counted == [system, system, text], "two bytes of a letter may be two tokens"


def test_a_task_that_does_not_fit_is_an_error(template: Template) -> None:
    with pytest.raises(ModelFailure, match="raise context_tokens"):
        fit_shared(template, context(goal="word " * 500), history=5, limit=300, count=words)


def test_a_template_with_an_unknown_name_is_refused(tmp_path: Path) -> None:
    for name in ("system", "shared", "message", "header", "summary", "question"):
        (tmp_path / f"{name}.jinja").write_text("{{ message }}" if name == "message" else "{{ colour }}")
    with pytest.raises(ConfigError, match=r"system\.jinja: 'colour' is undefined"):
        Template("own", read_templates(tmp_path)).render_system(MOBILE)


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs system\.jinja"):
        Template("own", read_templates(tmp_path))
    for name in ("system", "shared", "message", "header", "summary", "question"):
        (tmp_path / f"{name}.jinja").write_text("{% if %}")
    with pytest.raises(ConfigError, match=r"system\.jinja:1"):
        Template("own", read_templates(tmp_path))


def test_a_question_ends_the_prompt_and_shares_the_screen_before_it(template: Template) -> None:
    screen = context(elements=3).observation
    first, second = (template.build_question(screen, text) for text in ("What is [0]?", 'What does "{{ x }}" do?'))
    assert first.system == ""
    assert first.images == ()
    assert screen.text in first.shared
    assert first.shared == second.shared
    assert (first.suffix, second.suffix) == ("What is [0]?", 'What does "{{ x }}" do?')


def test_prompts_recorded_without_a_question_still_decide() -> None:
    texts = read_templates(find_builtin_root() / "prompts" / "default")
    del texts["question"]
    template = Template("old", texts)
    assert template.render_system(MOBILE)
    with pytest.raises(ConfigError, match=r"prompts/old: a question needs question\.jinja"):
        template.build_question(context().observation, "What is this?")


def test_a_question_that_is_not_shown_is_refused() -> None:
    texts = read_templates(find_builtin_root() / "prompts" / "default") | {"question": "{{ screen }}"}
    with pytest.raises(ConfigError, match=r"question\.jinja does not show"):
        Template("mute", texts).build_question(context().observation, "What is this?")


def test_a_folder_may_hold_only_what_differs(tmp_path: Path) -> None:
    own = tmp_path / "prompts" / "brief"
    own.mkdir(parents=True)
    (own / "header.jinja").write_text("You are {{ agent }}. Be brief.")
    texts, built_in = read_templates(own), read_templates(find_builtin_root() / "prompts" / "default")
    assert texts == {**built_in, "header": "You are {{ agent }}. Be brief."}
    beside = tmp_path / "prompts" / "default"
    beside.mkdir()
    (beside / "system.jinja").write_text("Mine.")
    assert read_templates(own)["system"] == "Mine.", "a default of one's own comes before the built-in one"
    (own / "sytem.jinja").write_text("")
    with pytest.raises(ConfigError, match=r"no template called 'sytem\.jinja'; did you mean system\.jinja"):
        read_templates(own)


def test_a_template_that_asks_for_what_it_is_not_told_is_refused_before_it_is_used(tmp_path: Path) -> None:
    texts = read_templates(find_builtin_root() / "prompts" / "default") | {"shared": "{{ goall }}"}
    said = r"prompts/mine/shared\.jinja: 'goall' is undefined; it may ask for goal, history, screen, summary$"
    with pytest.raises(ConfigError, match=said):
        Template("mine", texts)
