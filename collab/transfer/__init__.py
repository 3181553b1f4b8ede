"""Transfer: evaluate a trained team in another environment, with or without further training there.

    config = await configure(library, TransferRequest(mode="continual", agents="runs/marl@last", env="mobile-miniwob"))
    result = await start(config, Path("runs/transfer"))
    result = await resume(Path("runs/transfer"))

`direct`      The team and its base, the untrained start, play the same instances of the second environment.
`continual`   The team is trained further there; it is also DPO's reference (`reference: initial`). The continued team
              plays the second environment, and the first one again, as the transferred team did.

Results are differences of success rates (SR) over equal instances, each with a 95 % bootstrap interval
(`collab.evaluation.comparison`):

    Δ_generalization = SR(team) − SR(base)                      in the second environment
    gained           = SR(continued) − SR(transferred)          in the second environment
    forgetting       = SR(transferred) − SR(continued)          in the first environment

A transfer orders ordinary evaluations and an ordinary training, each resumable by itself. It reads complete parts,
resumes begun ones, and makes missing ones:

    DIR/transfer.json           the whole configuration, versions, digests of the weights
    DIR/lock                    held by the process that works on it
    DIR/second/base/            evaluations in the second environment, a run per seed
               transferred/
               continued/       … continual only, as all that follows
    DIR/first/transferred/      evaluations on held-out instances of the first environment, before …
              continued/        … and after
    DIR/training/               `collab train` in the second environment
    DIR/result.json, result.md  written last

Nothing is measured on instances that a team was trained or chosen on. Training keeps to the training split; evaluations
have their own seeds, 30 to 49, and none by which an epoch was chosen. In the first environment the instances are those
of the training's own held-out evaluation, on these other seeds.

Sources: CollabUIAgents, section 3.3 (direct transfer, continual MARL), tables 1 and 2 (Δ_generalization: "the
performance gap between the base model and agent learning methods based on the model" in the unseen environment).
Deviations: the paper's base is one agent of the model before any fine-tuning. Here it is the same team with the policy
that training began with, so that only training differs, unless another base is named. The paper reports both rates
after continual MARL; forgetting as their difference is our choice. Its instructions in the new environment are
synthesised; here they are the tasks of the training split, which no person labelled either. Steps are not compared with
recorded ones (step SR): environments judge whole episodes.
"""
