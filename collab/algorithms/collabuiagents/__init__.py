"""CollabUIAgents: a critic re-assigns credit to every cell, and DPO learns from chosen and rejected replies.

algorithm.py     the algorithm: what it configures, checks and tells
config.py        its method and configuration; ablations.py, presets/
judge.py         a critic judges a rollout, also while it is played
labeller.py      judgements and pairs of an epoch
examples.py      pairs and rewarded replies as examples
learner.py       one fine-tuning run per policy
estimate.py      what judging, pairing and learning will take
"""
