"""The loop of every algorithm: collect → label → learn → evaluate, epoch by epoch.

    config = await configure(library, algorithm="filtered-bc", env="androidworld", graph="team", agents="pocket")
    result = await start(config, Path("runs/trained"))
    result = await resume(Path("runs/trained"))

Every part can be resumed by itself, and so can the loop: it reads what is complete, resumes what was begun, and makes
what is missing:

    DIR/training.json            configuration, budget, device, versions, digest of the base; where it was moved to
                                 play; at the end the summary
    DIR/lock                     held by the process that trains
    DIR/epochs/0/evaluation/     success of the team before any training
    DIR/epochs/1/graph.json      edges of this epoch, drawn from seed and epoch before it is played
                 rollout/        an ordinary run of the last epoch's policy; its labels lie beside it, as `training`
                 examples/       examples of this epoch, and older ones that are mixed in
                 training/       an ordinary fine-tuning run (per agent: a folder for each)
                 evaluation/     an ordinary evaluation on held-out seeds
                 epoch.json      the epoch's record; written last

Every seed is derived from the run seed, a purpose and the epoch; episodes and labels are sorted by name. `record`
hashes texts, actions, labels and weights, never times. With `determinism: exact` on a processor, a training that was
killed anywhere ends with the same hash.

Tokens. A reply is trained in the tokens in which it was sampled, under a prompt in the tokens in which it was read.
If a sampled reply's tokens are not known in the policy's tokenizer, those of its text are trained. Such examples are
counted (`retokenised`), and left out if the method says `retokenised: refuse`. A reply that no policy sampled has the
tokens of its text.

`interfaces` holds what an algorithm has to fill in.
"""
