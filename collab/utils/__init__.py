"""What knows nothing of the project: files, threads, secrets, words."""
