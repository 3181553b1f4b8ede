"""The calibration of a critic: configuration, known steps, passes and numbers.

    config = await configure(library, CalibrationRequest(env="androidworld", critic="critic-llm", cases=100))
    result = await start(config, Path("calibrations/critic-llm"))
    result = await resume(Path("calibrations/critic-llm"))

Known steps always come from the training split: choosing a critic by its scores on test tasks would be tuning on the
test set.
"""
