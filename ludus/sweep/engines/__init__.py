"""Engines of a sweep: where its runs are executed."""
