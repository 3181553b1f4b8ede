"""The loop of every algorithm: collect → label → learn → evaluate, epoch by epoch.

    config = await configure(library, algorithm="filtered-bc", env="androidworld", graph="team", agents="pocket")
    result = await start(config, Path("runs/trained"))
    result = await resume(Path("runs/trained"))

This room orders parts that can each be resumed by themselves, and so it can be resumed itself. What is there already is
read, what was begun is resumed, what is missing is made:

    DIR/training.json            the whole configuration, budget, device, versions, digest of the base; at the end the
                                 summary
    DIR/lock                     held by the process that trains
    DIR/epochs/0/evaluation/     how the team does before any training
    DIR/epochs/1/graph.json      who hears whom in this epoch, drawn from seed and epoch before it is played
                 rollout/        an ordinary run of the policy of the epoch before; labels lie beside it, under the name
                                 `training`
                 examples/       what is learned, and examples of older epochs beside it
                 training/       an ordinary fine-tuning run (per agent: a folder for each)
                 evaluation/     an ordinary evaluation on held-out seeds
                 epoch.json      written last: the epoch is over, and this is what came of it

Nothing here is random by itself. Every seed is derived from the run seed, a purpose and the epoch, episodes and labels
are sorted by name, and `record` tells two trainings apart by what was said, done, labelled and learned, never by when.
With `determinism: exact` on a processor, a training that was killed anywhere ends with the same hash.

Tokens. A reply is trained in the tokens in which it was sampled, under a prompt in the tokens in which it was read.
Where a sampled reply's tokens are not known in the policy's tokenizer, those of its text are trained; such examples are
counted (`retokenised`), and left out where the method says `retokenised: refuse`. A synthesised rejected reply has the
tokens of its text.

What an algorithm has to fill in stands in `interfaces`.
"""
