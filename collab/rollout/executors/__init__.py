"""Places where episodes are played: in this process, or by Ray workers on one machine or many."""
