"""Play episodes and record them: one episode, many at once, whole runs."""
