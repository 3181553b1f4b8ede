"""A calibration of a critic, from names to numbers: what is asked for, the plan, the work and the way on.

    config = await configure(library, CalibrationRequest(env="androidworld", critic="critic-llm", cases=100))
    result = await start(config, Path("calibrations/critic-llm"))
    result = await resume(Path("calibrations/critic-llm"))

Known steps come from the training split, always: whoever chose a critic by what it says of test tasks would have chosen
on the test.
"""
