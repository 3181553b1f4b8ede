"""CollabUIAgents: a critic re-assigns credit to every cell, and DPO learns from chosen and rejected replies.

algorithm.py     the algorithm: configuration, checks, estimate
config.py        its method, configuration and ablations; presets/
labeller.py      judgements and pairs of an epoch
learner.py       examples, and one fine-tuning run per policy
metrics.py       metrics, hashes and printed lines
"""
