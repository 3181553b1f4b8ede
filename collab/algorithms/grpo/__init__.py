"""GRPO: episodes of one instance compared with each other."""
