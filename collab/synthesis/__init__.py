"""A synthesis from names to files: what is asked for, who teaches, the work and its plan.

    config = await configure(library, Wish(env="androidworld", teacher="oracle", screens=200))
    result = await start(config, Path("data/first"))
    result = await resume(Path("data/first"))

What is made is decided by the `SynthConfig` alone, which `synth.json` holds. Training data comes from the training
split, always: other tasks, run seeds and unseen apps cannot be asked for.
"""
