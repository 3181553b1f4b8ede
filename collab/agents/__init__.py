"""Agents: a policy reads the screen and other agents' messages, and answers with a reason and an action."""
