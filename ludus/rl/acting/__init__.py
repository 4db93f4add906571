"""Action selection: forward passes in NumPy where possible, and action distributions."""
