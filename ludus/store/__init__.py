"""Where the bytes of a run live: storage, checkpoints, segments, models, the lock."""
