"""A language model as a teacher: three roles, their prompts, and the reading of what they reply."""
