"""`collab train-marl`: what is refused before anything begins, and a training from end to end."""

import json
import re
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import ClassVar

import pytest

from collab.algorithms.collabuiagents.config import ABLATIONS
from collab.algorithms.filtered_bc.algorithm import FilteredBC
from collab.cli.main import main
from collab.errors import MissingExtra
from collab.library import list_presets
from collab.loop.config import Ablation
from collab.loop.interfaces import load_algorithm
from collab.loop.record import TrainingDir
from collab.rollout import build
from collab.rollout.run import read_stored_config
from collab.testing.corridor import CorridorSuite
from collab.testing.fake_server import FakeServer
from collab.testing.tiny_checkpoint import make_tiny_checkpoint
from collab.testing.toy_team import create_toy_team

FILES = {
    "envs/corridor.yaml": (
        "backend: fake\nbackends:\n  fake: {kind: fake, options: {max_steps: 2}}\ntasks: [PressButton]\n"
    ),
    "graphs/pair.yaml": "slots: [ada, ben]\nrounds: 1\nedges: [[ada, ben]]\n",
    "graphs/others.yaml": "slots: [cyd]\nrounds: 1\n",
    "agents/toy.yaml": ("kind: local\noptions: {path: PATH, device: cpu}\nprompt: pocket\nsampling: {max_tokens: 8}\n"),
}


@pytest.fixture
def library(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / "library" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("PATH", str(tmp_path / "tiny")))
    return tmp_path / "library"


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one line of a command that was asked for something impossible."""
    assert main(["train-marl", *map(str, arguments)]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    (line,) = shown.err.splitlines()
    return line


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--agents is missing"),
        (("--agents", "rehearsal"), "a rehearsal and not a language model"),
        (("--agents", "vllm"), "kind: local"),
        (("--agents", "nowhere@best"), "no such directory"),
        (("--agents", "nowhere@newest"), "RUN@best or RUN@epoch3"),
        (("--agents", "toy", "--preset", "papr"), "paper"),
        (
            ("--agents", "toy", "--instructions", "nowhere"),
            "no such directory with instructions; make it with",
        ),
        (("--agents", "toy", "--out", "x", "--report-to", "tensorbored"), "did you mean tensorboard"),
        (("--agents", "toy", "--plan", "--report-to", "tensorbored"), "did you mean tensorboard"),
        (("--agents", "toy", "--plan", "--device", "gpu"), "device"),
        (("--agents", "toy", "--set", "epocs=2"), "epochs"),
        (("--agents", "toy", "--set", "run.tasks=[a]"), "--set run.tasks: say it with --tasks"),
        (("--agents", "toy", "--set", "run.seed=39"), "--set run.seed: say it with --seed"),
        (("--agents", "toy", "--set", "seed=5"), "a setting of the run; say it with --seed"),
        (("--agents", "toy", "--set", "run.budget.tokens=10"), "--set run.budget: say it with --budget"),
        (("--agents", "toy", "--set", "run.episodes=7"), "--set run.episodes: an epoch has --set episodes=N"),
        (("--agents", "toy", "--split", "unseen-app"), "--split unseen-app"),
        (("--agents", "toy", "--graph", "pair"), "--out is missing"),
        (("--agents", "toy", "--ablation", "no-rc"), "no-cr"),
        (("--agents", "toy", "--ablation", "untrained-team"), "collab eval --agents NAME"),
        (("--agents", "toy", "--graph", "pair", "--ablation", "single-agent"), "leave out --graph pair"),
        (
            ("--agents", "toy", "--graph", "pair", "--ablation", "no-cr", "--set", "steps=null"),
            "none is played twice",
        ),
        (("--agents", "toy", "--graph", "pair", "--ablation", "anchor"), "changes nothing"),
        (("--agents", "toy", "--graph", "pair", "--set", "edges={sampler: nope}"), "no edge sampler called 'nope'"),
        (("--agents", "toy", "--graph", "pair", "--set", "edges={sampler: layered, widths: [3]}"), "widths"),
        (("--agents", "toy", "--set", "pairs.correction=0"), "weight above 0"),
        (("--agents", "toy", "--graph", "pair", "--plan", "--device", "tpu"), "no device called 'tpu'"),
        (("--resume", "nowhere"), "no such directory"),
        (("--resume", "nowhere", "--seed", "1", "--set", "epochs=2"), "leave out"),
        (("--resume", "nowhere", "--allow-uncalibrated"), "leave out --allow-uncalibrated"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    capsys: pytest.CaptureFixture[str], library: Path, arguments: tuple[str, ...], said: str
) -> None:
    given = () if "--resume" in arguments else ("--env", "corridor", "--library", library)
    assert said in refused(capsys, *given, *arguments)


@pytest.mark.parametrize("command", ["train", "transfer"])
def test_the_help_lists_what_every_algorithm_takes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Of built-in ones and those of installed packages; a package that cannot be imported is only named."""
    entries = [
        EntryPoint("newest", "outside:Newest", "collab.algorithms"),
        EntryPoint("grader", f"{__name__}:Grader", "collab.algorithms"),
    ]
    monkeypatch.setattr(build, "list_entry_points", lambda: entries)
    monkeypatch.setenv("COLUMNS", "400")
    assert main([command, "--help"]) == 0
    told = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "One of: appvlm, coach, collabuiagents, digirl, distrl, filtered-bc, grader, grpo, newest, ppo." in told
    for name in ("collabuiagents", "digirl", "filtered-bc"):
        assert f"f {name}: {', '.join(list_presets(load_algorithm(name).presets))}" in told
    ablations = [name for name, one in ABLATIONS.items() if command != "transfer" or one.graph is None]
    digirl, distrl = (", ".join(load_algorithm(name).ablations) for name in ("digirl", "distrl"))
    assert f"of collabuiagents: {', '.join(ablations)}; of digirl: {digirl}; of distrl: {distrl}; of grader: " in told
    judged = "Let the critic or verifier judge without a sufficient calibration."
    assert f"{judged} Of appvlm, coach, collabuiagents, digirl, distrl, filtered-bc, grader, grpo, ppo alone." in told


def test_the_help_of_train_marl_lists_what_its_own_algorithm_takes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    assert main(["train-marl", "--help"]) == 0
    told = " ".join(capsys.readouterr().out.replace("│", " ").split())
    assert "--algo " not in told.partition("Options")[2]
    assert f"Of collabuiagents: {', '.join(ABLATIONS)}." in told
    assert "of digirl" not in told


class Grader(FilteredBC):
    """An algorithm from elsewhere, with an ablation."""

    name = "grader"
    ablations: ClassVar = {"strict": Ablation(description="solved episodes alone", settings=("epochs=1",))}


def test_a_critic_without_a_calibration_is_refused(
    capsys: pytest.CaptureFixture[str], library: Path, tmp_path: Path
) -> None:
    asked = ["--env", "corridor", "--graph", "pair", "--agents", "toy", "--library", library]
    asked += ["--set", "critic=critic-outcome", "--calibrations", "measured", "--out", tmp_path / "run"]
    said = refused(capsys, *asked)
    command = f"collab critic calibrate --critic critic-outcome --library {library} --out measured/critic-outcome"
    assert f"{command}, or let it" in said
    assert not (tmp_path / "run").exists()


def test_an_adversary_that_cannot_be_asked_is_refused(
    capsys: pytest.CaptureFixture[str], library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before anything is played for it to be asked about."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (library / "agents/mute.yaml").write_text("kind: rehearsal\n")
    asked = ["--env", "corridor", "--graph", "pair", "--agents", "toy", "--library", library]
    asked += ["--out", tmp_path / "run", "--set", "pairs.adversary=1"]
    assert "OPENAI_API_KEY" in refused(capsys, *asked, "--set", "adversary=openai")
    said = refused(capsys, *asked, "--set", "adversary=mute", "--budget", "tokens=9")
    assert "--budget tokens: agents file of the adversary does not count tokens" in said
    assert not (tmp_path / "run").exists()


def test_a_reward_model_that_is_not_there_is_refused(
    capsys: pytest.CaptureFixture[str], library: Path, tmp_path: Path
) -> None:
    asked = ["--env", "corridor", "--graph", "pair", "--agents", "toy", "--library", library, "--allow-uncalibrated"]
    said = refused(capsys, *asked, "--set", "critic=critic-model", "--out", tmp_path / "run")
    assert "checkpoints/my-critic: no such model directory" in said
    assert not (tmp_path / "run").exists()


def served(tmp_path: Path, address: str, *options: str) -> list[str]:
    """A training of a team on a server; adapters are trained over the checkpoint that it has."""
    checkpoint = make_tiny_checkpoint(tmp_path / "tiny", hidden=32, layers=1)
    (tmp_path / "library/agents/served.yaml").write_text(
        f"kind: openai\noptions: {{model: {checkpoint}, base_url: '{address}', retries: 0{''.join(options)}}}\n"
        "prompt: pocket\nsampling: {max_tokens: 8}\n"
    )
    method = ("dpo.lora={rank: 4, alpha: 8, merge: false}", "dpo.saved=float32")
    asked = ["--env", "corridor", "--graph", "pair", "--agents", "served", "--library", str(tmp_path / "library")]
    return [*asked, *(item for one in method for item in ("--set", one)), "--out", str(tmp_path / "run")]


def test_a_team_that_cannot_play_leaves_no_training_behind(
    capsys: pytest.CaptureFixture[str], library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-0123456789")
    with FakeServer() as server:
        said = refused(capsys, *served(tmp_path, server.url), "--budget", "usd=1")
        assert "--budget usd: ada (served) does not say what it costs; set its prices" in said
        assert not (tmp_path / "run").exists()
        address = server.url
    assert main(["train-marl", *served(tmp_path, address)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert address in line
    assert not (tmp_path / "run").exists()


def test_an_environment_that_does_not_open_leaves_no_training_behind(
    capsys: pytest.CaptureFixture[str], asked: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unopened(suite: CorridorSuite) -> None:
        raise MissingExtra.of("playwright", "web", "opening web pages")

    monkeypatch.setattr(CorridorSuite, "open", unopened)
    assert "playwright" in refused(capsys, *asked[1:], "--out", tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.fixture
def asked(library: Path, tmp_path: Path) -> list[str]:
    """A training of seconds of a team that knows nothing."""
    make_tiny_checkpoint(tmp_path / "tiny", hidden=32, layers=1)
    small = ("epochs=1", "episodes=1", "held_out.episodes=1", "determinism=exact")
    team = ["--env", "corridor", "--graph", "pair", "--agents", "toy", "--library", str(library)]
    return ["train-marl", *team, *(item for one in small for item in ("--set", one)), "--device", "cpu", "--json"]


def test_any_resume_command_continues_a_training(
    capsys: pytest.CaptureFixture[str], asked: list[str], tmp_path: Path
) -> None:
    """With all of it: what lies inside is left to it."""
    out, short = tmp_path / "run", ("--budget", "minutes=0.000001")
    for command in ([*asked, "--out"], ["runs", "resume"]):
        assert main([*command, str(out), *short]) == 1
        assert f"; resume with: collab train --resume {out}\n" in capsys.readouterr().err
    for part in ("epochs/1/rollout", "epochs/0/evaluation/seed-39", "epochs/1/training"):
        assert main(["runs", "resume", str(out / part)]) == 2
        told = f"is a part of the training {out}, which alone resumes it: collab train --resume {out}"
        assert told in capsys.readouterr().err


def test_a_team_that_is_never_right_is_told_before_anything_is_learned(
    capsys: pytest.CaptureFixture[str], asked: list[str], tmp_path: Path
) -> None:
    """It knows nothing: no cell is rewarded, and no further epoch could change that."""
    out = tmp_path / "run"
    for command in ([*asked, "--set", "epochs=3", "--set", "held_out.before=false", "--out"], ["runs", "resume"]):
        assert main([*command, str(out)]) == 1, "also when it is resumed"
        shown = capsys.readouterr()
        (line,) = (line for line in shown.err.splitlines() if "nothing to learn" in line)
        assert line.startswith(f"error: {out}/epochs/1/rollout: there is nothing to learn from this first rollout: ")
        assert re.search(r"0 pairs, (0\.0% of \d cells rewarded|no cell has a score), agents disagree in 0\.0%", line)
        assert "--resume" not in line, "that would end alike"
        for advice in ("--set exploration_temperatures=1.5", "--agents", "--set steps=1600"):
            assert advice in line
        assert not list(out.glob("epochs/1/training")), "nothing was trained"
        assert not list(out.glob("epochs/2")), "and nothing more was played"


@pytest.mark.slow
def test_a_team_that_always_agrees_is_told_before_anything_is_learned(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    team = create_toy_team(tmp_path)
    assert team.own is not None
    (team.own / "graphs/solo.yaml").write_text("slots: [ada]\nrounds: 1\n")
    small = ("epochs=1", "episodes=16", "held_out.episodes=1", "held_out.before=false", "determinism=exact")
    asked = ["--env", "corridor", "--graph", "solo", "--agents", "toy", "--library", str(team.own)]
    asked += [*(item for one in small for item in ("--set", one)), "--device", "cpu"]
    capsys.readouterr()
    assert main(["train-marl", *asked, "--out", str(tmp_path / "run")]) == 1
    err = capsys.readouterr().err
    assert "nothing to learn from this first rollout: 0 pairs, " in err
    assert "agents disagree in 0.0% of states" in err
    # With rewarded replies alone there is something to learn, but little: said while it goes on.
    rft = ["--ablation", "rft", "--set", "dpo.context=2048", "--out", str(tmp_path / "rft")]
    assert main(["train-marl", *asked, *rft]) == 0
    shown = capsys.readouterr()
    assert re.search(
        r"the first rollout can teach little: \d+ rewarded repl(y|ies), [\d.]+% of \d+ cells rewarded", shown.err
    )
    assert "differed in 0% of states" in shown.out
    assert "no two agents" not in shown.err, "one agent cannot disagree"
    # Two that always agree: enough is learned, and nothing of it from each other.
    (team.own / "graphs/twins.yaml").write_text("slots: [ada, ben]\nrounds: 1\n")
    rft[-1] = str(tmp_path / "twins")
    assert main(["train-marl", *asked, *rft, "--graph", "twins", "--set", "exploration_temperatures=0"]) == 0
    told = (
        "no two agents of the first rollout proposed different actions in any state, so neither votes nor edges change"
    )
    assert told in capsys.readouterr().err


@pytest.fixture
def taught(tmp_path: Path) -> Path:
    """The library of a team that is often wrong and often right."""
    library = create_toy_team(tmp_path / "toy").own
    assert library is not None
    (library / "graphs/others.yaml").write_text(FILES["graphs/others.yaml"])
    return library


def ask_toy(library: Path, *settings: str) -> list[str]:
    """A training of seconds of that team, with pairs of every source."""
    small = ["epochs=1", "episodes=6", "held_out.episodes=2", "dpo.context=2048", *settings]
    small += ["pairs={adversary: 1, contrast: 1, correction: 0.5}"]
    team = ["--env", "corridor", "--graph", "pair", "--agents", "toy", "--library", str(library)]
    return ["train-marl", *team, *(word for one in small for word in ("--set", one)), "--device", "cpu"]


@pytest.mark.slow
def test_a_training_that_was_resumed_ends_like_an_undisturbed_one(
    capsys: pytest.CaptureFixture[str], taught: Path, tmp_path: Path
) -> None:
    """And both know the team that they began with."""
    whole, cut, library = tmp_path / "whole", tmp_path / "cut", taught
    asked = [*ask_toy(taught, "determinism=exact"), "--json"]
    capsys.readouterr()
    assert main([*asked, "--out", str(whole)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert main([*asked, "--out", str(cut), "--budget", "minutes=0.000001"]) == 1
    capsys.readouterr()
    assert main(["runs", "resume", str(cut), "--budget", "minutes=9", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["summary"] == told["summary"]
    play = ["eval", "--env", "corridor", "--graph", "pair", "--library", str(library), "--episodes", "1"]
    assert main([*play, "--agents", f"{cut}@epoch0", "--out", str(tmp_path / "untrained")]) == 0


@pytest.mark.slow
def test_a_team_is_planned_trained_and_played(capsys: pytest.CaptureFixture[str], taught: Path, tmp_path: Path) -> None:
    train, out, library = [*ask_toy(taught), "--json"], str(tmp_path / "run"), taught
    capsys.readouterr()
    assert main([*train, "--plan"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert plan["episodes"] == 6 + 2 * 2
    assert plan["calls"] == {"low": 10 * 4, "high": 10 * 4 * 3}
    assert plan["sampled"] == "rollouts at temperatures 0.5, 0.8, held-out evaluations at temperature 0.7"
    assert not Path(out).exists()
    assert main([*train, "--out", out, "--budget", "usd=1"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [record["epoch"] for record in told["epochs"]] == [0, 1]
    assert main(["train-marl", "--resume", out, "--json"]) == 0
    again = capsys.readouterr()
    assert json.loads(again.out)["summary"] == told["summary"]
    assert f"{out} is finished; to train on, begin another training with --agents {out}@last" in again.err
    play = ["eval", "--env", "corridor", "--library", str(library), "--agents", f"{out}@best", "--json"]
    assert main([*play, "--graph", "pair", "--out", str(tmp_path / "eval")]) == 0
    capsys.readouterr()
    assert main([*play, "--graph", "others", "--out", str(tmp_path / "other")]) == 2
    assert "was trained as ada, ben" in capsys.readouterr().err
    # One of a team plays alone.
    assert main([*play, "--graph", "single", "--out", str(tmp_path / "alone")]) == 0
    assert list(read_stored_config(tmp_path / "alone").agents) == ["ada"]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_a_training_learned_from_is_listed_exported_and_reported(
    capsys: pytest.CaptureFixture[str], taught: Path, tmp_path: Path
) -> None:
    event_accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    parquet = pytest.importorskip("pyarrow.parquet")
    train, out = ask_toy(taught, "dpo.log_every=1"), str(tmp_path / "run")
    assert main([*train, "--report-to", "tensorboard", "--out", out, "--json"]) == 0
    learned = json.loads(capsys.readouterr().out)["epochs"][1]
    assert learned["examples"]["shared"]["examples"] > 0
    assert main(["pairs", "list", out, "--json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)["runs"]
    assert len(listed["pairs"]) > 0
    tables = tmp_path / "tables"
    assert main(["runs", "export", out, "--parquet", str(tables), "--json"]) == 0
    rows = {file.stem: parquet.read_table(file).to_pylist() for file in tables.glob("*.parquet")}
    assert len(rows["episodes"]) == 6 + 2 * 2, "the epoch, and both evaluations"
    assert len(rows["pairs"]) == len(rows["preferences"]) > 0
    (events,) = Path(out).glob("epochs/1/training/tensorboard/events.out.tfevents.*")
    found = event_accumulator.EventAccumulator(str(events.parent))
    found.Reload()
    steps = [scalar.step for scalar in found.Scalars("train/loss")]
    assert steps
    assert steps == sorted(set(steps))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "reason", "sizes"),
    [
        (
            "gemma2",
            "its layers are not all full attention",
            {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
            | {"num_key_value_heads": 2, "head_dim": 16, "sliding_window": 16},
        ),
        ("gptj", "some of its layers", {"n_embd": 64, "n_layer": 2, "n_head": 4, "rotary_dim": 8, "n_positions": 4096}),
    ],
)
def test_a_family_that_this_method_cannot_train_leaves_no_training_behind(
    capsys: pytest.CaptureFixture[str], library: Path, tmp_path: Path, kind: str, reason: str, sizes: dict[str, int]
) -> None:
    """It plays; what cannot be is said before anything does."""
    transformers = pytest.importorskip("transformers")
    tokenizer = transformers.AutoTokenizer.from_pretrained(make_tiny_checkpoint(tmp_path / "tokens"))
    special = {"vocab_size": len(tokenizer), "bos_token_id": None, "eos_token_id": 2, "pad_token_id": 0}
    config = transformers.CONFIG_MAPPING[kind](**sizes, **special)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "tiny")
    tokenizer.save_pretrained(tmp_path / "tiny")
    capsys.readouterr()
    asked = ["train-marl", "--env", "corridor", "--graph", "pair", "--agents", "toy", "--library", str(library)]
    train = [*asked, "--device", "cpu", "--out", str(tmp_path / "run")]
    assert main(train) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f"prefixes cannot be shared while it is trained: {reason}" in line
    assert line.endswith("; set dpo.sharing=none")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_team_learns_from_synthesised_instructions_at_home_and_abroad(
    collab: Callable[..., tuple[int, str, str]],
) -> None:
    """What `collab synth` made is played by rollouts alone: evaluations play the environment's own tasks."""
    small = ("epochs=1", "episodes=3", "steps=null", "held_out.episodes=1", "held_out.before=false")
    small += ("exploration_temperatures=1.0", "dpo.save_every=50")

    def run(*command: str) -> str:
        sets = (word for one in small for word in ("--set", one)) if command[0] != "synth" else ()
        code, out, err = collab(*command, *sets)
        assert code == 0, err
        return f"{out}{err}"

    asked = ("--env", "corridor")
    run("synth", *asked, "--levels", "instruction", "--episodes", "2", "--screens", "2", "--out", "data")
    learn = (*asked, "--instructions", "data", "--device", "cpu")
    run("train-marl", *learn, "--graph", "team", "--agents", "early", "--out", "run")
    epoch = TrainingDir(Path("run")).get_epoch(1)
    own, made = "fake[corridor]", "fake[corridor] instructions by oracle"
    assert json.loads((epoch.rollout / "run.json").read_text())["environment"] == made
    assert json.loads((epoch.evaluation / "seed-39/run.json").read_text())["environment"] == own
    assert json.loads(epoch.record.read_text())["trained"]["shared"]["steps"] > 0

    phone = ("--env", "androidworld", "--tasks", "SystemWifiTurnOn,SystemBluetoothTurnOn,ContactsAddContact")
    run("train-marl", *phone, "--graph", "team", "--agents", "early", "--device", "cpu", "--out", "home")
    few = ("--seeds", "30", "--episodes", "2", "--out", "moved")
    assert own in run("transfer", "--mode", "continual", *learn, "--agents", "home@last", *few)
    (begun,) = Path("moved").rglob("epochs/1/rollout/run.json")
    assert json.loads(begun.read_text())["environment"] == made
