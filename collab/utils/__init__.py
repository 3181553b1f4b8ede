"""Helpers that are independent of the project: files, threads, secrets, words."""
