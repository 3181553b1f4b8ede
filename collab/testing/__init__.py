"""Toy teams, and the proof that a killed training ends like an undisturbed one."""
