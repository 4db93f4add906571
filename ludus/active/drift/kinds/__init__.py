"""The kinds of state estimator, one file each."""
