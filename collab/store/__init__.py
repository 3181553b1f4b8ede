"""The store: a run directory holds everything about a run.

    store = RunStore.create(path, manifest)        collab.store.run
    with store.open_writer() as writer: ...        append-only event log, pictures by hash
    reader = store.open_reader()                   episodes, trajectories, unreadable parts

The log in `events/` is the truth. `run.json` is the run's head, `blobs/` holds pictures, and `index.sqlite` only speeds
up queries. docs/run-format.md describes the format.
"""
