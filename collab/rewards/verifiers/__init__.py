"""Verifiers: whether an episode succeeded, in the eyes of the environment's rules, a model, or a trained checkpoint.

    base        `OutcomeVerifier` turns a `VerifierInput` (a recorded episode) into a `Verdict`
    rules       the environment's own outcome; another verifier's with a share inverted on purpose
    language    a model that reads the actions and the last screens as text; vision: one that sees pictures of them
    judge       what such a model is asked for, and how its reply is read
    rows        questions of a text judge with the rules' answers, to train a verifier of one's own
    verdicts    stored verdicts beside a run, and `verify_rollout`, which gives those that are missing
    registry    a verifier from its agents file
    agreement   how often a verifier agrees with another one, as numbers; agree: measured on recorded runs
    gate        whether its verdicts may be learned from

A verdict is success, failure, or missing with its cause. An error and prose are missing verdicts, never failures.
Sources: the evaluators of DigiRL (Bai et al. 2024) and of DistRL (Wang et al. 2024).
"""
