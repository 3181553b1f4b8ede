"""Critics that score single actions, and the rewards made of their scores (CollabUIAgents, section 3.2).

    base            `Critic` turns a `CriticInput` (a recorded step) into a `Judgement`
    oracle          judges by executing each action in the very state; outcome: by the end of the episode
    llm             judges by asking a language model; reward_model: by a scoring checkpoint
    credit          a judgement as rewards per cell, with the method's threshold
    labels          stored judgements beside a run; labelling: label a run, many steps at once
    calibration/    how far a critic can be trusted, measured on steps of known worth
    registry        a critic from its agents file
    verifiers/      whether whole episodes succeeded, in the eyes of something else than the environment

The exact parts ask the environment itself: they fork or rebuild its state and look at the rest of the solution.
Adversaries and preference pairs are in `collab.preferences`.
"""
