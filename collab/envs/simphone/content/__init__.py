"""Data of a phone: people, messages, events and notes, and the pools that they are drawn from."""
