"""A synthesis from names to files: what is asked for, who teaches, the work and its plan.

    config = await configure(library, Wish(env="androidworld", teacher="oracle", screens=200))
    result = await start(config, Path("data/first"))
    result = await resume(Path("data/first"))

What is made is decided by the `SynthConfig` alone, which `synth.json` holds. Training data comes from the training
split, always: other tasks, run seeds and unseen apps cannot be asked for.

Agentic fine-tuning data that an environment and a teacher make by themselves (CollabUIAgents, Appendix B).

    screens ──► teacher ──► Example ──► checked, de-duplicated, balanced ──► Parquet + data card

Three levels and the demonstrations that join them:

    basic          what a screen is for, what an element is, says and does
    instruction    one instruction, one step, on a screen met by exploring or on the way through a task
    demonstration  every step of a task's solution, among messages of mixed quality, and the way back from mistakes
    preference     a good and a bad reply to the same prompt, judged step by step

The teacher is an environment that knows its solutions (`oracle`) or a language model (`llm`).

    what is made     rows, table (Parquet), card, report
    screens          scenes (exploring, following a solution), trial (what an action would do)
    what is said     facts and questions (basic), instructions with phrases and texts, talk (peers), hands (verbs)
    the policy       reader: the prompts in which it will be asked
    teachers         teacher (the seam), oracle, llm/, book (writing a lesson down)
    the work         plan and unit (what there is to do, and doing one piece), synth (all of them at once), journal
                     (what is done), select and finish (from pieces to files)

From names to a running synthesis: `collab.synthesis`.
"""
