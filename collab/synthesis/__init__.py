"""Synthesise agentic fine-tuning data from an environment and a teacher (CollabUIAgents, Appendix B).

    config = await configure(library, SynthesisRequest(env="androidworld", teacher="oracle", screens=200))
    result = await start(config, Path("data/first"))
    result = await resume(Path("data/first"))

The `SynthConfig` in `synth.json` alone decides the rows. They always come from the training split: other tasks, run
seeds and unseen apps are refused.

    screens ──► teacher ──► Example ──► checked, de-duplicated, balanced ──► Parquet + data card

The levels:

    basic          the purpose of a screen; the function, text and effect of an element
    instruction    one instruction, one step, on a screen met by exploring or on the way through a task
    demonstration  every step of a task's solution, with messages of mixed quality, and recovery from mistakes
    preference     a good and a bad reply to the same prompt, judged step by step
    judgement      a policy's candidate for a step, and whether it is right, to train a process reward model

The teacher is an environment that knows its solutions (`oracle`) or a language model (`llm`).

    config           names → configuration and units of work
    screens          exploring, following a solution, trying an action
    facts, wording   texts about screens and elements; instructions, renaming build on them
    conversation     the prompts that the policy will read, and its peers' messages
    judgement        candidates of a policy, and the rows of their judge
    teacher          the interface; oracle_teacher and llm_teacher (with llm_prompts) implement it
    caller           calls of models, none of them paid for twice
    units, run       do the work and write the files; journal records it, card describes it, estimate predicts it
"""
