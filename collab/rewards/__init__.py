"""Who deserves what: judging single actions and proposing worse ones (CollabUIAgents, section 3.2).

    case        a recorded step, and the way back into its state
    critic      how good each cell's action is             → judgement      oracle, outcome, llm
    adversary   a plausible reply that is worse            → negative       sampler, llm, mixture
    pairs       rewarded replies against worse ones        → pairs          adversary, contrast, correction; trajectory

The exact parts ask the environment itself, by forking or rebuilding its state and looking at the rest of the solution.
"""
