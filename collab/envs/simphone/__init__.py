"""SimPhone: an Android-like phone in pure Python, fast, forkable and deterministic."""
