"""Algorithms: one folder each, filling the seam of `collab.loop.interfaces`."""
