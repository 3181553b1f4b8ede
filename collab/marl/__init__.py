"""Multi-agent training with credit re-assignment: rewire → play → judge → pair → train → measure, epoch by epoch.

    config = await configure(library, preset="collab", method=method, env="androidworld", graph="team", agents="local")
    result = await start(config, Path("runs/marl"))
    result = await resume(Path("runs/marl"))

This room only orders parts that can each be gone on with by themselves, and so it can be gone on with itself. What is
there already is read, what was begun is gone on with, what is missing is made:

    DIR/marl.json                the whole configuration, budget, device, versions, digest of the base; at the end the
                                 summary
    DIR/lock                     held by the process that trains
    DIR/epochs/0/evaluation/     how the team does before any training
    DIR/epochs/1/graph.json      who hears whom in this epoch, drawn from seed and epoch before anybody plays
                 rollout/        an ordinary run of the policy of the epoch before; judgements and pairs lie beside it:
                 rollout/labels/marl, rollout/pairs/marl, rollout/proposals
                 rows/           what is learned (see `rows`), and pairs of older epochs beside it
                 training/       an ordinary `collab finetune --stage dpo`, by objective "rft" `sft` (per agent: one
                                 folder for each), by "trajectory-dpo" one that only this room makes
                 evaluation/     an ordinary evaluation on held-out seeds
                 epoch.json      written last: the epoch is over, and this is what came of it

Nothing here is random by itself. Every seed is derived from the run seed, a purpose and the epoch, episodes and pairs
are sorted by name, and `hashing` tells two runs apart by what was said, done, rewarded, paired and learned, never by
when. With `determinism: exact` on a processor, a run that was killed anywhere ends with the same hash.

Tokens. A reply is trained in the tokens in which it was sampled, under a prompt in the tokens in which it was read.
Where a sampled reply's tokens are not known in the policy's tokenizer, those of its text are trained; such pairs are
counted (`retokenised`), and left out where the method says `retokenised: refuse`. What nobody sampled, like a worse
side that was made up, has the tokens of its text.

Sources: CollabUIAgents, section 3.2 (edge update, rewards, eq. 7 and 8). Open there, chosen here: the epoch that
counts is the best on held-out seeds, ties to the earlier one; epoch 0, the untrained team, is a candidate.
"""
