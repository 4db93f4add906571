"""Scores of transferability: how well a model would learn labels that it was not trained for.

    from ludus.active.selection import h_score, leep, logme, nce

Each takes NumPy arrays or tensors and returns one number; more is better. The modules have the names of their
functions, and the package gives the functions.
"""

from ludus.active.selection.h_score import h_score
from ludus.active.selection.leep import leep
from ludus.active.selection.logme import logme
from ludus.active.selection.nce import nce

__all__ = ["h_score", "leep", "logme", "nce"]
