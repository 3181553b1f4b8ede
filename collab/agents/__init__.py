"""Agents: a policy that reads the screen and what others said, and answers with a reason and an action."""
