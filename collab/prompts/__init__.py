"""Prompts of agents and parsing of their replies."""
