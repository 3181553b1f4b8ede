"""Profiles for property tests: no deadline per example, because a busy machine is not a wrong program.

Where a change is checked (`CI` is set) the examples are always the same, so that it fails for its own faults only;
elsewhere they are drawn anew each time.
"""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("explore", deadline=None)
settings.register_profile("repeat", deadline=None, derandomize=True)
settings.load_profile("repeat" if os.environ.get("CI") else "explore")
