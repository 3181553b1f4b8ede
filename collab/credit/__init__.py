"""Who deserves what: judging single actions and proposing worse ones (CollabUIAgents, section 3.3).

    critic      how good an action is, in this very state
    adversary   a plausible action that is worse

Both exist as what an environment can tell by itself, by forking and looking at the rest of the solution: `oracle`
judges and `sampler` proposes.
"""
