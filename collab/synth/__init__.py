"""Agentic fine-tuning data that an environment and a teacher make by themselves (CollabUIAgents, Appendix B).

    screens ──► teacher ──► Row ──► checked, de-duplicated, balanced ──► Parquet + data card

Three levels and the demonstrations that join them:

    basic          what a screen is for, what an element is, says and does
    instruction    one instruction, one step, on a screen met by exploring or on the way through a task
    demonstration  every step of a task's solution, among messages of mixed quality, and the way back from mistakes
    preference     a good and a bad reply to the same prompt, judged step by step

The teacher is an environment that knows its solutions (`oracle`) or a language model.
"""
