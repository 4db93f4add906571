"""How well a model still knows its data: calibration, entropy, distances of distributions."""
