"""Filtered behaviour cloning: imitate every reply of the episodes that were solved."""
