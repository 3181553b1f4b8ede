"""AppVLM: imitate what was solved in rounds of collecting, and at the end all of it anew from the base."""
