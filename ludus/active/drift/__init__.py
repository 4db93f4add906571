"""Drift detection: calibration error, entropy, and two-sample tests of features."""
