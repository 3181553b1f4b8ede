"""What tests of scripts share: they import what lies in the folder of scripts."""

from __future__ import annotations

import sys
from pathlib import Path

SCRIPTS = str(Path(__file__).parents[2] / "scripts")

if SCRIPTS not in sys.path:
    sys.path.insert(0, SCRIPTS)
