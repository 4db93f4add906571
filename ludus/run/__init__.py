"""What surrounds a run: its directory, checkpoints, log, display and seeds."""
