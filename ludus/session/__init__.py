"""Runtime of a run: the session, checkpointing, resuming, the fingerprint, the logger."""
