"""The engine of a local model: batching, attention over shared prefixes, sampling."""
