"""Algorithms: one folder each, implementing the interfaces of `collab.loop.interfaces`."""
