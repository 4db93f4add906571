"""Commands of sweeps."""
