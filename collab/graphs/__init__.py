"""Graphs of conversation: the DAG, the samplers of its edges, its pictures, and the deliberation on it."""
