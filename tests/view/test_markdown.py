import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from collab.cli.main import main
from collab.view.markdown import escape_markdown, report
from collab.view.plots import Plot
from collab.view.schema.runs import HeatView, ProblemView, RateView

READER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])


def inline(text):
    """Kinds of tokens in a document, those within lines included."""
    for token in READER.parse(text):
        yield token.type
        yield from (child.type for child in token.children or ())


def table(text, heading):
    """Rows of the table below a heading, cell by cell."""
    lines = text.split(f"## {heading}\n")[1].split("\n## ")[0].splitlines()
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines if line.startswith("| ")]


def test_a_training_is_told_number_by_number(overview, view_of):
    epochs = (overview.epochs[0], replace(overview.epochs[1], older=60))
    text = report(view_of(overview), replace(overview, epochs=epochs))
    assert text.startswith("# Training runs/marl\n")
    assert "| took | 480 steps, 5760 calls, 98000 tokens, cost not known, 62 s |" in text
    assert "60.0 [50.0, 70.0] (50): % on held-out seeds after epoch 2 [95 % Wilson interval] (episodes)." in text
    assert table(text, "Epochs")[2] == [
        *("2 (best)", "55.0 [45.0, 65.0] (40)", "54.0 [44.0, 64.0] (50)", "240", "70.0", "0.7", "4", "60")
    ]
    assert table(text, "Rewards")[1:3] == [
        ["1", "ada", "25.0", "50.0", "37.5", "oracle-2"],
        ["1", "ben", "75.0", "–", "75.0", "oracle-2"],
    ]
    assert table(text, "Pairs")[1:3] == [["adversary", "100", "200"], ["contrast", "40", "40"]]
    assert table(text, "Training")[1] == ["1", "shared", "4", "12345", "0.175", "0.4", "0.875", ""]
    assert table(text, "Cost")[1:] == [
        ["rollout", "40.0", "5760", "80000", "8000", "–"],
        ["training", "–", "0", "24690", "–", "–"],
    ]
    assert ["no action", "malformed", "4"] in table(text, "Cells without an action or a score")
    assert table(text, "Who heard whom")[1:] == [
        ["1", "ada / ben", "ada → ben", "–", "–"],
        ["2", "ada / ben", "ada → ben", "none", "ben → ada"],
    ]


def test_every_table_is_one_to_whoever_reads_markdown(overview, view_of):
    kinds = list(inline(report(view_of(overview), overview)))
    assert kinds.count("table_open") == 10
    assert "html_inline" not in kinds


def test_a_rehearsal_is_marked_before_its_numbers(overview, view_of):
    marked = replace(overview, run=replace(overview.run, privileged=True))
    text = report(view_of(marked), marked)
    assert text.index("rehearsal: not a language model") < text.index("## Success")


def test_nothing_known_is_a_dash_and_empty_columns_are_left_out(one_epoch, view_of):
    empty = RateView(successes=0, episodes=0, value=None, low=None, high=None)
    bare = replace(one_epoch, run=replace(one_epoch.run, success=empty))
    text = report(view_of(bare), bare)
    assert "\n–: % over planned episodes" in text
    assert "held out" not in text
    assert "## Training" not in text


def test_what_cannot_be_read_is_told_and_counted(overview, view_of):
    problems = [ProblemView(file="events/0001.jsonl", line=place, reason="not JSON") for place in range(1, 31)]
    text = report(view_of(overview), overview, problems)
    assert "- events/0001.jsonl, line 1: not JSON" in text
    assert "- and 10 more" in text


def test_pictures_stand_with_their_titles(overview, view_of):
    figure = Plot(name="a", title="Success [%]", figure=None)
    text = report(view_of(overview), overview, pictures=[(figure, "my figures/a>b.svg")])
    [picture] = [child for token in READER.parse(text) for child in token.children or () if child.type == "image"]
    assert picture.attrs["src"] == "my%20figures/a%3Eb.svg"
    assert picture.content == "Success \\[%\\]"


NASTY = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[a](javascript:alert(1))",
    "![a](http://evil.example/x.png)",
    "| a | b |",
    "`code` **bold** _soft_ ~~gone~~ $math$",
    "# heading",
    "- list",
    "1. list",
    "> quote",
    "https://evil.example www.evil.example a@evil.example",
    "&lt;b&gt; &#60;b&#62;",
    "line\nbreak\r\n\n# heading",
    "\u202eright to left\u202c \x00 \x1b[31m \ud800",
]
HARMLESS = {
    *(
        "heading_open",
        "heading_close",
        "inline",
        "text",
        "paragraph_open",
        "paragraph_close",
        "softbreak",
        "text_special",
    ),
    *("table_open", "table_close", "thead_open", "thead_close", "tbody_open", "tbody_close"),
    *("tr_open", "tr_close", "th_open", "th_close", "td_open", "td_close"),
    *("bullet_list_open", "bullet_list_close", "list_item_open", "list_item_close"),
}


@pytest.mark.parametrize("nasty", NASTY)
def test_text_from_outside_is_never_markup(overview, view_of, nasty):
    first = overview.epochs[0]
    epoch = replace(
        first,
        rewards=HeatView(agents=(nasty,), rounds=1, rates=((0.5,),), critic=nasty),
        pairs={nasty: 1},
        failures={nasty: 1},
        missing={nasty: 1},
        trained=(replace(first.trained[0], policy=nasty, alarm=nasty),),
        spent=(replace(first.spent[0], part=nasty),),
        graph=replace(first.graph, agents=(nasty,), edges=((nasty, nasty),), layers=((nasty,),)),
    )
    run = replace(overview.run, path=nasty, environment=nasty, agents=nasty, graph=nasty, seed=nasty, command=nasty)
    spoilt = replace(
        overview,
        run=run,
        labels=nasty,
        epochs=(epoch,),
        tasks=(replace(overview.tasks[0], name=nasty, difficulty=nasty),),
    )
    view = replace(view_of(spoilt), versions={nasty: nasty})
    clean = list(inline(report(view_of(overview), overview, [ProblemView(file="a", line=1, reason="b")])))
    kinds = list(inline(report(view, spoilt, [ProblemView(file=nasty, line=1, reason=nasty)])))
    assert set(kinds) <= HARMLESS
    assert kinds.count("table_open") == clean.count("table_open")


@settings(max_examples=40)
@given(st.text(max_size=40))
def test_words_read_back_as_they_were(words):
    shown = "".join(letter if letter.isprintable() else " " for letter in words).strip()
    tokens = READER.parse(f"x{escape_markdown(words)}")
    told = "".join(child.content for token in tokens for child in token.children or ())
    assert " ".join(told.split()) == " ".join(f"x{shown}".split())


def test_the_command_prints_what_the_overview_knows(recorded, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["report", str(recorded)]) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith("# Run ")
    assert "**rehearsal: not a language model**" in shown.out
    assert table(shown.out, "Rewards")[1][0] == "0"
    assert main(["report", str(recorded), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["overview"]["run"]["done"] == 3
    assert data["overview"]["epochs"][0]["steps"] == data["overview"]["run"]["steps"] > 0
    assert data["problems"] == []


@pytest.mark.slow
def test_the_command_draws_every_plot_and_names_it(recorded, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert main(["report", str(recorded), "--figures", str(tmp_path / "plots")]) == 0
    assert "plots/rewards-0.svg>)" in capsys.readouterr().out
    names = {path.name for path in (tmp_path / "plots").iterdir()}
    assert {"pairs.svg", "pairs.png", "success-tasks.svg", "graph-0.png"} <= names


def test_a_folder_of_several_runs_is_refused(recorded, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for name in ("one", "two"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "run.json").write_bytes((recorded / "run.json").read_bytes())
        (tmp_path / "runs" / name / "events").mkdir()
    assert main(["report", str(tmp_path / "runs")]) == 2
    assert "holds 2 runs; name one of them" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "nothing")]) == 2
