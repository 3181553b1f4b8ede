"""Who may judge in a training: a critic whose last calibration is good enough for the method, or the oracle."""

from __future__ import annotations

from pathlib import Path

from collab.credit.gate import EXACT, FOLDER, admit, last_calibration, told
from collab.critics import Bench
from collab.marl.config import MarlConfig


async def admitted(config: MarlConfig, *, calibrations: Path = FOLDER, anyway: bool = False) -> str:
    """What is known of the critic of a training, in a line; it may judge.

    Args:
        calibrations: where they are looked for; a directory with one of them each, or a calibration itself.
        anyway: let it judge, whatever is known of it.

    Raises:
        ConfigError: it has no calibration, or one that does not reach the method's `least_auc`; or it cannot be built.
        RunFormatError: a calibration cannot be read.
    """
    if not config.method.is_judged:
        return f"not asked, objective {config.method.objective} learns from outcomes alone"
    name, kind, least = config.method.critic, config.critic.kind, config.method.least_auc
    bench = Bench.of(name, config.critic, config.critic_texts)
    try:
        found = last_calibration(calibrations, bench.digest)
    finally:
        await bench.close()
    if least is not None:
        admit(found, least, critic=name, kind=kind, folder=calibrations, anyway=anyway)
    if found is not None:
        return f"calibrated {found.created}: {told(found)}"
    return "exact by construction" if kind in EXACT else f"no finished calibration of it in {calibrations}"
