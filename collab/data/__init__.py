"""What is trained on, what is kept for evaluation, and the check that refuses to mix them."""
