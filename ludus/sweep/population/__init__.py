"""Population-based training: runs that copy the checkpoints of better ones, and go on with other values."""
