"""Contract suites: what any trainer, part, logger back end or storage must do to be trusted."""
