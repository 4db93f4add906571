"""Pruners: end a run early that does worse than others at the same step."""
