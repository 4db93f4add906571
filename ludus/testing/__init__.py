"""Contract suites: the checks that any trainer, part, logger back end or storage must pass."""
