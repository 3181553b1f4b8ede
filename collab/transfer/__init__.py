"""Transfer: a team that was trained in one environment plays another one, as it is or after training there, too.

    config = await configure(library, Wish(mode="continual", agents="runs/marl@best", env="mobile-miniwob"))
    result = await start(config, Path("runs/transfer"))
    result = await resume(Path("runs/transfer"))

`direct`      The transferred team and its base, the untrained start, play the same instances of the second environment.
`continual`   Training goes on there from the transferred team, which is also what DPO refers to (`reference: initial`).
              The continued team plays the second environment, and the first one again, as the transferred team did.

What is told, in success rates (SR) over equal instances, each with a 95 % bootstrap interval
(`collab.evaluation.comparison`):

    Δ_generalization = SR(team) − SR(base)                      in the second environment
    gained           = SR(continued) − SR(transferred)          in the second environment
    forgetting       = SR(transferred) − SR(continued)          in the first environment

Like a training, a transfer only orders parts that can each be gone on with by themselves: ordinary evaluations, and an
ordinary training. What is there is read, what was begun is gone on with, what is missing is made:

    DIR/transfer.json           the whole configuration, versions, digests of the weights
    DIR/lock                    held by the process that works on it
    DIR/second/base/            evaluations in the second environment, a run per seed
               transferred/
               continued/       … continual only, as all that follows
    DIR/first/transferred/      evaluations on held-out instances of the first environment, before …
              continued/        … and after
    DIR/training/               `collab train` in the second environment
    DIR/result.json, result.md  written last

Nothing is measured on what a team was trained or chosen on. Training keeps to the training split; evaluations have
seeds of their own, 30 to 39, and none by which an epoch was chosen. In the first environment the instances are those
of the training's own held-out evaluation, on these other seeds.

Sources: CollabUIAgents, section 3.3 (direct transfer, continual MARL), tables 1 and 2 (Δ_generalization: "the
performance gap between the base model and agent learning methods based on the model" in the unseen environment).
Deviations: the paper's base is one agent of the model before any fine-tuning; here it is the same team with the policy
that training began with, so that nothing but training differs, unless another base is named. The paper reports both
rates after continual MARL; forgetting as their difference is chosen here. Its instructions in the new environment are
synthesised; here they are the tasks of the environment's training split, which no person labelled either. Steps are not
compared with recorded ones (step SR): environments judge whole episodes.
"""
