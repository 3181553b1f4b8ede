"""Success rates, comparisons and reports: pure functions over finished episodes."""
