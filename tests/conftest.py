"""One profile for property tests: no deadline per example, because a busy machine is not a wrong program."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("collab", deadline=None)
settings.load_profile("collab")
