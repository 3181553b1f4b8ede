"""The store: a run directory is all that is known of a run.

    store = RunStore.create(path, manifest)        collab.store.run
    with store.writer() as writer: ...             append-only event log, pictures by hash
    reader = store.reader()                        episodes, trajectories, labels, what could not be read

The log in `events/` is the truth; `run.json` says what was run, `blobs/` holds pictures, and `index.sqlite` only
answers questions faster. The format is described in `docs/run-format.md`.
"""
