"""From a recorded run to its preference pairs, and to other pairs of the same run: without a new rollout.

    result = await rebuild(RebuildRequest(run=Path("runs/first")), Library())    # labels it, pairs it
    result = await rebuild(RebuildRequest(run=Path("runs/first"), threshold=0.7), Library())    # pairs it anew
    result.difference.dropped

    RUN/labels/NAME        what a critic said of every step          collab.rewards.labels
    RUN/proposals          what adversaries said                     collab.preferences.replies
    RUN/pairs/NAME         the pairs                                 collab.preferences.store

What was judged or answered is never asked again, whoever was killed in between.
"""
