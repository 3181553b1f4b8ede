"""M3A, T3A and SeeAct: what their model is sent in both calls of a step, what is recorded, and that runs resume."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from collab.errors import ModelFailure
from collab.library import find_builtin_root
from collab.prompts.render import StepChange, Template, fit_change, read_templates
from collab.store.fingerprint import hash_run
from collab.store.reader import RunReader
from collab.store.run import RunStore
from collab.testing.fake_server import FakeServer, Fault
from collab.types import HistoryEntry, Observation, Trajectory

PHONE = ("rollout", "--env", "androidworld", "--graph", "single", "--tasks", "ContactsAddContact", "--seed", "3")
CHANGED, DESCRIBED = "was just executed", "without choosing anything yet"
ACTIONS = (
    'Reason: The contacts are there.\nAction: {"action_type": "open_app", "app_name": "Contacts"}',
    'Reason: Something else.\nAction: {"action_type": "navigate_home"}',
    'Reason: It cannot be done.\nAction: {"action_type": "status", "goal_status": "infeasible"}',
)


def read_text(body: Mapping[str, Any]) -> str:
    content = body["messages"][-1]["content"]
    return content if isinstance(content, str) else next(part["text"] for part in content if part["type"] == "text")


def count_pictures(body: Mapping[str, Any]) -> int:
    content = body["messages"][-1]["content"]
    return 0 if isinstance(content, str) else sum(part["type"] == "image_url" for part in content)


def is_question(body: Mapping[str, Any]) -> bool:
    """Whether a request is one of the episode, and no question what the model supports."""
    return "ontact" in read_text(body)


def say(body: Mapping[str, Any]) -> str:
    """Reply by the prompt alone: an action by the number of steps before it, or words."""
    text = read_text(body)
    if not is_question(body):
        return "ok"
    if CHANGED in text:
        found = re.search(r"just executed: (.*)", text)
        assert found is not None
        return f"The phone did this:\n{found[1]}."
    if text.rstrip().endswith("no action.") and DESCRIBED in text:
        return "The app of contacts should be opened next."
    return ACTIONS[min(2, len(re.findall(r"^\d+\. ", text, re.MULTILINE)))]


def play(collab, server: FakeServer, agent: str, out: str = "run", *more: str) -> Trajectory:
    """Play one episode by a shipped agent, with its model on the server."""
    options = ("--set", f"agents.*.options={{base_url: '{server.url}', model: fake}}")
    code, _, err = collab(*PHONE, "--agents", agent, *options, "--out", out, *more)
    assert code == 0, err
    with RunReader(Path(out)) as reader:
        (trajectory,) = reader.iterate_trajectories()
    assert trajectory.error is None
    return trajectory


def list_questions(server: FakeServer) -> list[dict[str, Any]]:
    return [body for body in server.delivered if is_question(body)]


@pytest.mark.parametrize(("agent", "pictures"), [("m3a", 1), ("t3a", 0)])
def test_a_second_call_says_what_a_step_changed(collab, agent: str, pictures: int) -> None:
    with FakeServer(["images"], says=say) as server:
        trajectory = play(collab, server, agent)
        first, changed, second, again, third = list_questions(server)
    assert [count_pictures(body) for body in (first, changed, second)] == [pictures, 2 * pictures, pictures]
    assert "Reason: one or two sentences" in first["messages"][0]["content"]
    text = read_text(changed)
    assert "just executed: open the app" in text
    assert "The contacts are there." in text
    assert text.index("Before it:") < text.index("After it:")
    assert ("The first picture" in text) == bool(pictures)
    # Both lines of the reply become one of the next prompt, and stay in the prompts behind it.
    line = f"1. The phone did this: {trajectory.steps[0].history.action}."
    assert line in read_text(second)
    assert line in read_text(third)
    assert CHANGED in read_text(again)
    assert [step.executed.type for step in trajectory.steps if step.executed] == ["open_app", "navigate_home", "status"]
    assert trajectory.steps[0].summary_reply is None
    reply = trajectory.steps[1].summary_reply
    assert reply is not None
    assert reply.text == f"The phone did this:\n{trajectory.steps[0].history.action}."
    assert (reply.action, reply.failure) == (None, None)
    assert reply.prompt_tokens
    assert reply.completion_tokens
    with RunReader(Path("run")) as reader:
        assert reader.read_prefix(reply.prompt.prefix).partition("\f")[2] == text
    code, out, _ = collab("runs", "show", "run", "--episode", trajectory.id, "--step", "1")
    assert code == 0
    assert f"about the step before:\n    The phone did this:\n    {trajectory.steps[0].history.action}." in out


def test_seeact_describes_its_action_and_then_chooses(collab) -> None:
    with FakeServer(["images"], says=say) as server:
        trajectory = play(collab, server, "seeact")
        described, chosen, *_ = bodies = list_questions(server)
    assert len(bodies) == 6
    assert described["messages"][0] == chosen["messages"][0]
    before, after = read_text(described), read_text(chosen)
    shared = before[: before.index("You are ")]
    assert after.startswith(shared)
    assert DESCRIBED in before
    assert "The app of contacts should be opened next." in after[len(shared) :]
    assert after.rstrip().endswith("choose an action that needs none.")
    cell = trajectory.steps[0].matrix.utterances[0]
    assert cell.action is not None
    assert cell.proposal is not None
    assert cell.proposal.text == "The app of contacts should be opened next."
    assert (cell.proposal.action, cell.proposal.failure) == (None, None)
    assert cell.proposal.seed != cell.seed
    assert cell.proposal.prompt.prefix == cell.prompt.prefix
    code, out, _ = collab("runs", "show", "run", "--episode", trajectory.id, "--step", "0")
    assert code == 0
    assert "before it chose:\n    The app of contacts should be opened next." in out


@pytest.mark.medium
@pytest.mark.variations
@pytest.mark.parametrize("agent", ["m3a", "t3a", "seeact"])
def test_faults_of_a_server_change_nothing(collab, agent: str) -> None:
    """The first try of every question fails, each in another way."""
    faults = [Fault(status=429, headers={"Retry-After": "0"}), Fault(broken="truncate"), Fault(broken="shape")]
    seen: set[str] = set()

    def refuse(body: Mapping[str, Any]) -> Fault | None:
        if not is_question(body) or read_text(body) in seen:
            return None
        seen.add(read_text(body))
        return faults[len(seen) % len(faults)]

    with FakeServer(["images"], says=say) as server:
        play(collab, server, agent, "whole")
    with FakeServer(["images"], says=say, refuses=refuse) as server:
        play(collab, server, agent, "faulty")
    assert len(seen) >= 5
    assert hash_run(RunStore.open(Path("faulty"))) == hash_run(RunStore.open(Path("whole")))


@pytest.mark.medium
@pytest.mark.parametrize("agent", ["m3a", pytest.param("seeact", marks=pytest.mark.slow)])
def test_a_stopped_run_resumes_as_if_it_had_not_stopped(collab, agent: str) -> None:
    with FakeServer(["images"], says=say) as server:
        whole = play(collab, server, agent, "whole")
        first = whole.steps[0].matrix.utterances[0]
        calls = [one for one in (first.proposal, first) if one is not None]
        spent = sum((one.prompt_tokens or 0) + (one.completion_tokens or 0) for one in calls)
        options = ("--set", f"agents.*.options={{base_url: '{server.url}', model: fake}}")
        code, _, err = collab(*PHONE, "--agents", agent, *options, "--out", "run", "--budget", f"tokens={spent + 1}")
        assert "collab runs resume run" in err
        with RunReader(Path("run")) as reader:
            assert 1 <= sum(one.steps for one in reader.list_episodes()) < len(whole.steps)
        code, _, err = collab("runs", "resume", "run", "--budget", "tokens=1e9")
    assert code == 0, err
    assert hash_run(RunStore.open(Path("run"))) == hash_run(RunStore.open(Path("whole")))


def test_two_screens_that_do_not_fit_are_shortened_alike() -> None:
    template = Template("m3a", read_templates(find_builtin_root() / "prompts/m3a", ["change"]))
    screens = ["\n".join(f"{name} {line}" for line in range(50)) for name in ("old", "new")]
    before, after = (Observation(space="mobile", title="t", elements=(), text=text) for text in screens)
    entry = HistoryEntry(action="go back", reason="", effect="")
    change = StepChange(goal="Look.", entry=entry, before=before, after=after)
    asked = fit_change(template, change, limit=700, count=len, screen=True, images=())
    assert len(asked.text) <= 700
    assert asked.text.count("more lines are not shown") == 2
    kept = re.findall(r"^(old|new) (\d+)$", asked.text, re.MULTILINE)
    assert [line for name, line in kept if name == "old"] == [line for name, line in kept if name == "new"]
    assert asked.trimmed == (f"elements:{50 - len(kept) // 2}",)
    with pytest.raises(ModelFailure, match=r"a question about the last step needs \d+ tokens of prompt, 100 are left"):
        fit_change(template, change, limit=100, count=len, screen=True, images=())


@pytest.mark.parametrize("option", ["step_summaries", "proposal"])
def test_a_rehearsal_is_asked_for_actions_alone(collab, option: str) -> None:
    code, _, err = collab(*PHONE, "--agents", "rehearsal", "--set", f"agents.*.{option}=true")
    assert code == 2
    assert err.strip() == f"error: agents/rehearsal: {option}: true needs a language model; rehearsal writes none"
