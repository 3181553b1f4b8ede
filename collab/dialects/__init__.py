"""Dialects: how model families that operate screens speak, one file per family; `base` says what a dialect is."""
