"""Tinker's API over ludus's own learner and sampling engine: training behind an API, on this machine."""
