"""Who hears whom: the DAG, the samplers of its edges, its pictures, and the conversation on it."""
