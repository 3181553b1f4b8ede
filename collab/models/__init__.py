"""Things that answer prompts: servers, local checkpoints, scripts and the rehearsal."""
