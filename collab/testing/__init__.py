"""Toy teams, and the proof that a killed training ends like one that was not disturbed."""
