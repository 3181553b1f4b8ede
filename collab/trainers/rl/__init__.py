"""Reinforcement learning of one checkpoint: what a step was worth, what is lost, what is replayed.

    rewards, values, log-probabilities ──► estimators ──► advantage and weight of each turn
                                                              │
    log-probabilities of a batch, with gradient ──────────► losses ──► one number to minimise

`estimators` and `replay` need no torch: what is learned is computed and written down before it is learned.
"""
