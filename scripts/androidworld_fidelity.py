"""Let AndroidWorld's own tasks set up and judge SimPhone: do its judges say what ours say?

    python scripts/androidworld_fidelity.py --package ../android_world --python ../android_world/.venv/bin/python
    python scripts/androidworld_fidelity.py --package ../android_world --seeds 30 --tasks ExpenseAddSingle,FilesMoveFile

How to get the package: docs/androidworld-fidelity.md, which `--markdown` writes. Printed: what is not as it should be,
and one line of counts. The exit code is 1 when something is not.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
from pathlib import Path

from collab.envs.simphone.adb.automator import PhoneHandle
from collab.envs.simphone.adb.server import serve_phones
from collab.envs.simphone.conformance import table
from collab.envs.simphone.conformance.fidelity import (
    Examiner,
    FidelityVerdict,
    build_androidworld_executor,
    build_own_executor,
    start_judge,
)
from collab.envs.simphone.tasks import BY_NAME
from collab.errors import CollabError, UnknownName
from collab.utils.machine import read_commit
from collab.utils.text import read_numbers, split_names

SERIAL = "emulator-5554"


def options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--package", type=Path, required=True, metavar="PATH", help="AndroidWorld's source code")
    parser.add_argument("--python", type=Path, metavar="EXE", help="its interpreter (PATH/.venv/bin/python)")
    parser.add_argument("--seeds", default="30,31,32", help="suite seeds (%(default)s)")
    parser.add_argument("--tasks", action="append", help="names, separated by commas (all tasks of SimPhone)")
    parser.add_argument(
        "--their-executor", action="store_true", help="once more, with AndroidWorld executing our solution through adb"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every score there")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the page there")
    parser.add_argument("--log", type=Path, metavar="FILE", help="what AndroidWorld prints (a temporary file)")
    return parser.parse_args()


def choose_instances(given: argparse.Namespace) -> list[tuple[str, int]]:
    """(task, suite seed) of every instance; UsageError for a name or a number that is none."""
    names = split_names("--tasks", given.tasks) or list(BY_NAME)
    for name in names:
        if name not in BY_NAME:
            raise UnknownName.of("task", name, BY_NAME, "see them with: collab env tasks androidworld")
    seeds = read_numbers("--seeds", [given.seeds])
    return [(name, seed) for name in names for seed in seeds]


def examine(given: argparse.Namespace, log: Path) -> dict[str, list[FidelityVerdict]]:
    """Verdicts of all instances, by who executed our solution; a line on standard error for each miss."""
    instances = choose_instances(given)
    python = given.python or given.package / ".venv" / "bin" / "python"
    handle = PhoneHandle()
    with (
        serve_phones({SERIAL: handle}) as port,
        start_judge(python, given.package.resolve(), port=port, serial=SERIAL, log=log) as judge,
    ):
        executors = {"simphone": build_own_executor(handle)}
        if given.their_executor:
            executors["androidworld"] = build_androidworld_executor(handle, judge)
        return {
            who: judge_instances(Examiner(judge, handle, executor=one), instances, who)
            for who, one in executors.items()
        }


def judge_instances(examiner: Examiner, instances: list[tuple[str, int]], who: str) -> list[FidelityVerdict]:
    """Verdicts of all instances."""
    verdicts: list[FidelityVerdict] = []
    for place, (name, seed) in enumerate(instances, 1):
        verdicts.append(examiner.examine(name, seed))
        for line in table.list_misses(verdicts[-1:]):
            print(f"[{who}'s executor, {place}/{len(instances)}] {line}", file=sys.stderr, flush=True)
    return verdicts


def command(given: argparse.Namespace) -> str:
    """This command as it can be repeated, with AndroidWorld where the page says that it lies."""
    words = ["python", "scripts/androidworld_fidelity.py", "--package", "../android_world", "--seeds", given.seeds]
    words += ["--tasks", ",".join(given.tasks)] if given.tasks else []
    return shlex.join([*words, *(["--their-executor"] if given.their_executor else [])])


def main() -> int:
    """Examine, print and write the tasks; return 1 if any solution leaves a miss."""
    given = options()
    try:
        with tempfile.TemporaryDirectory() as folder:
            results = examine(given, given.log or Path(folder) / "androidworld.log")
    except CollabError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return problem.exit_code
    verdicts, by_their_executor = results["simphone"], results.get("androidworld", [])
    if given.json:
        plain = {who: table.to_json(found) for who, found in results.items()}
        given.json.write_text(json.dumps(plain, indent=1) + "\n", encoding="utf-8")
    if given.markdown:
        text = table.format_page(
            verdicts,
            command=command(given),
            commit=read_commit(given.package) or "unknown",
            by_their_executor=by_their_executor,
        )
        given.markdown.write_text(text, encoding="utf-8")
    for who, found in results.items():
        print(f"{who}'s executor: {table.format_summary(found)}")
    return int(any(verdict.misses for found in results.values() for verdict in found))


if __name__ == "__main__":
    sys.exit(main())
