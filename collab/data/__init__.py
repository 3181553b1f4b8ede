"""Training data, evaluation splits, and the contamination check between them."""
