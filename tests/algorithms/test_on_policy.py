"""Android Coach, PPO and GRPO learn the present policy's own replies alone, by the tokens that were sampled."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from collab.cli.main import main
from collab.loop.record import TrainingDir, read_records
from collab.models.base import Capabilities, Reply, Request
from collab.models.local import LocalModel
from collab.store.run import RunStore
from collab.testing.fake_server import FakeServer
from collab.testing.toy_team import write_library

ALGORITHMS = ("coach", "ppo", "grpo")
SMALL = (
    *("epochs=1", "episodes=4", "steps=null", "held_out={episodes: 1, before: false}"),
    *("rl.context=2048", "rl.batch_rows=8", "run.environment.backends.fake.options.declared=false"),
)


def train(algorithm: str, checkpoint: Path, folder: Path, *settings: str) -> int:
    """Train in the corridor by the default preset, as from the command line, and return the exit status."""
    library = write_library(folder / "library", checkpoint)
    asked = ["--env", "corridor", "--graph", "single", "--agents", "toy", "--library", str(library.own)]
    more = [word for one in (*SMALL, *settings) for word in ("--set", one)]
    return main(["train", "--algo", algorithm, *asked, *more, "--device", "cpu", "--out", str(folder / "run")])


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_model_that_does_not_report_tokens_is_refused(
    algorithm: str, tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def probe(self: LocalModel) -> Capabilities:
        return Capabilities(logprobs=True, counts_tokens=True)

    monkeypatch.setattr(LocalModel, "probe", probe)
    assert train(algorithm, tiny, tmp_path) == 2
    assert (
        f"--algo {algorithm}: needs the tokens of replies as they were sampled, and agents/toy does not report their "
        "tokens; use kind: local, or a server that reports them (collab serve)"
    ) in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


LORA = ("rl.lora={rank: 4, merge: false}", "rl.saved=float32")
"""With which a server may play what is trained."""


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_server_that_does_not_report_tokens_is_refused(
    algorithm: str, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is asked what it reports: probabilities alone are not enough."""
    library = write_library(tmp_path / "library", tiny).own
    assert library is not None
    with FakeServer(supports=("seed", "logprobs")) as server:
        (library / "agents/served.yaml").write_text(
            "kind: openai\nprompt: pocket\n"
            f"options: {{model: '{tiny}', base_url: '{server.url}', api_key_env: '', retries: 0}}\n"
        )
        asked = ["--env", "corridor", "--graph", "single", "--agents", "served", "--library", str(library)]
        more = [word for one in (*SMALL, *LORA) for word in ("--set", one)]
        out = ["--device", "cpu", "--out", str(tmp_path / "run")]
        assert main(["train", "--algo", algorithm, *asked, *more, *out]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "agents/served does not report their tokens; use kind: local, or a server that reports them" in line
    assert not (tmp_path / "run").exists()


MASKED = "masks tokens that the policy could have said"


@pytest.mark.parametrize(
    ("algorithm", "options", "obstacle"),
    [
        *((one, "structured: true", f"structured=true {MASKED}; set it to false") for one in (*ALGORITHMS, "distrl")),
        ("grpo", "extra: {top_k: 20}", "extra.top_k=20 changes the distribution; leave it out"),
        ("ppo", "extra: {guided_regex: a}", f"extra.guided_regex=a {MASKED}; leave it out"),
        (
            "grpo",
            "extra: {temperature: 0.7}",
            "extra.temperature=0.7 takes the place of the temperature that a ratio is computed at; leave it out",
        ),
        ("ppo", "extra: {stop: [x]}", "extra.stop=['x'] cuts replies where the policy did not end; leave it out"),
        (
            "ppo",
            "extra: {ignore_eos: true}",
            "extra.ignore_eos=True keeps replies from ending where the policy ended; leave it out",
        ),
    ],
)
def test_a_server_that_cuts_or_masks_the_distribution_is_refused(
    algorithm: str, options: str, obstacle: str, tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    library = write_library(tmp_path / "library", tiny).own
    assert library is not None
    (library / "agents/served.yaml").write_text(
        f"kind: openai\nprompt: pocket\noptions: {{model: '{tiny}', base_url: 'http://127.0.0.1:9/v1', {options}}}\n"
    )
    asked = ["--env", "corridor", "--graph", "single", "--agents", "served", "--library", str(library)]
    sync = ["collection=sync"] if algorithm == "distrl" else []
    more = [word for one in (*SMALL, *LORA, *sync) for word in ("--set", one)]
    assert main(["train", "--algo", algorithm, *asked, *more, "--device", "cpu", "--out", str(tmp_path / "run")]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"error: --algo {algorithm}: needs the probability of each reply, and agents.ada.options.{obstacle}"
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "algorithm",
    ["ppo", "filtered-bc", *(pytest.param(one, marks=pytest.mark.slow) for one in ("coach", "grpo"))],
)
def test_replies_without_tokens_end_a_training_in_its_first_epoch(
    algorithm: str, finetuned: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also one whose policy would wait for its Q; what to set is named where it can be set."""
    generate = LocalModel.generate

    async def hide(self: LocalModel, request: Request) -> Reply:
        reply = await generate(self, request)
        return replace(reply, tokens=None, tokenizer=None, logprobs=None, behaviour_logprobs=None)

    monkeypatch.setattr(LocalModel, "generate", hide)
    own = ("offline=null", "retokenised=refuse") if algorithm == "filtered-bc" else ()
    assert train(algorithm, finetuned, tmp_path, "epochs=4", "episodes=8", *own) == 1
    told = capsys.readouterr().err
    assert "the tokens in which a reply was sampled are not known" in told
    advice = "a model that reports the tokens of its replies"
    kept = "retokenised=keep, or " if algorithm == "filtered-bc" else ""
    assert f"begin another training with {kept}{advice}" in told


@pytest.mark.medium
@pytest.mark.timeout(600)
@pytest.mark.variations
@pytest.mark.parametrize(
    ("algorithm", "last", "settings", "why", "remedy"),
    [
        (
            "grpo",
            4,  # epochs of six groups each: 24 in all
            ("episodes=12", "group=2"),
            "its group ended alike",
            "more episodes of an instance (--set group=N), other exploration_temperatures, another base (--agents)",
        ),
        ("ppo", 3, ("episodes=2",), "its advantage is 0", "another base (--agents)"),
    ],
)
def test_epochs_that_teach_nothing_are_passed_over_and_some_at_first_end_a_training(
    algorithm: str,
    last: int,
    settings: tuple[str, ...],
    why: str,
    remedy: str,
    tiny: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Nothing is ever solved; the next episodes might be, so the first epochs are only told of."""
    assert train(algorithm, tiny, tmp_path, "epochs=5", *settings) == 1
    told = capsys.readouterr().err
    for epoch in range(1, last):
        assert re.search(rf"epoch {epoch}: nothing to learn: 0 of \d+ judged episodes solved; .*: \d+ {why}", told)
    assert f"epoch {last}: nothing to learn" not in told
    line = told.splitlines()[-1]
    assert f"there is nothing to learn from this rollout and the {last - 1} before it; in this one: 0 of" in line
    assert f"begin another training with {remedy}" in line
    folder = TrainingDir(tmp_path / "run")
    assert [folder.get_epoch(number + 1).record.exists() for number in range(last)] == [True] * (last - 1) + [False]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("algorithm", ["coach", "ppo", "grpo"])
def test_a_killed_training_ends_like_an_undisturbed_one(
    algorithm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify-resume", "--algo", algorithm, "--quick", "--out", str(tmp_path / "proof")]) == 0
    assert "the same" in capsys.readouterr().out


@pytest.mark.medium
@pytest.mark.timeout(600)
@pytest.mark.parametrize(("rate", "is_told"), [("0.05", True), ("1e-6", False)])
def test_a_policy_that_forgets_how_to_reply_is_warned_of(
    finetuned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], rate: str, is_told: bool
) -> None:
    """At an absurd rate the first epoch leaves nothing of what the checkpoint could say."""
    more = (f"rl.learning_rate={rate}", "epochs=2", "episodes=8", "determinism=fast")
    assert train("grpo", finetuned, tmp_path, *more) == 0
    capsys.readouterr()
    assert main(["runs", "show", str(tmp_path / "run")]) == 0
    lines = capsys.readouterr().out.splitlines()
    forgotten = [line for line in lines if "forgets how to reply" in line]
    assert bool(forgotten) is is_told
    if is_told:
        (line,) = forgotten
        assert re.fullmatch(
            r"epoch 2 \| warning  \d+% of played replies have no action \(\d+% at first\): the policy forgets how to "
            r"reply; lower the learning rate, or play the best epoch \(@best\)",
            line,
        ), line
        assert "epoch 2 | groups   0 of 2 ended differently" in lines
    # An epoch in which little teaches says what to raise.
    for epoch in (1, 2):
        (told,) = [line for line in lines if line.startswith(f"epoch {epoch} | groups ")]
        apart, groups = map(int, re.findall(r"(\d+) of (\d+) ended", told)[0])
        few = f"epoch {epoch} | warning  few groups ended differently, and only these teach anything; raise group, "
        assert any(line.startswith(few) for line in lines) is (apart < 0.4 * groups)


@pytest.mark.slow
@pytest.mark.browser
@pytest.mark.timeout(900)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_policy_is_trained_on_web_pages_by_the_same_command(algorithm: str, tmp_path: Path) -> None:
    """Pages that the shipped base solves at times, so that there is something to compare."""
    asked = [
        "--env",
        "mobile-miniwob",
        "--tasks",
        "click-test,click-link,click-button,enter-text-2",
        "--graph",
        "single",
    ]
    small = ("epochs=2", "episodes=24", "steps=null", "held_out={episodes: 2, before: false}", "rl.batch_rows=16")
    more = [word for one in small for word in ("--set", one)]
    out = tmp_path / "run"
    command = ["train", "--algo", algorithm, *asked, "--agents", "early", *more, "--device", "cpu", "--out", str(out)]
    assert main(command) == 0
    records = read_records(TrainingDir(out), 2)
    assert sum(record.trained["shared"].steps for record in records if record.trained) > 0
    assert records[0].weights != records[2].weights
    with RunStore.open(TrainingDir(out).get_epoch(2).rollout).open_reader() as reader:
        assert reader.manifest.environment.startswith("mobile-miniwob")
