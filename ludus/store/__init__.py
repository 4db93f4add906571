"""Files of a run: storage, checkpoints, segments, models, logs, the lock."""
