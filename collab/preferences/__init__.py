"""Make preference pairs from a recorded run, and make them anew in another way, without a new rollout.

    result = await rebuild(RebuildRequest(run=Path("runs/first")), Library())    # labels it, pairs it
    result = await rebuild(RebuildRequest(run=Path("runs/first"), threshold=0.7), Library())    # pairs it anew
    result.difference.dropped

    RUN/labels/NAME        a critic's scores for every step       collab.rewards.labels
    RUN/proposals          replies of adversaries                   collab.preferences.proposals
    RUN/pairs/NAME         the pairs                                 collab.preferences.store

A critic or an adversary is asked once: a repeated command continues after its stored answers, even after a kill.
"""
