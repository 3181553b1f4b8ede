"""Screens of the phone, their layout, and their pictures."""
