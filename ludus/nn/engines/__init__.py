"""How one gradient step is executed: eagerly, by a tape, by a CUDA graph or compiled; never what it does."""
