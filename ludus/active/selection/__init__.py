"""Transferability scores: how well a pre-trained model would learn new labels.

    from ludus.active.selection import h_score, leep, logme, nce

Each takes NumPy arrays or tensors and returns one number; higher is better. The modules are named like their
functions, and the package exports the functions.
"""

from ludus.active.selection.h_score import h_score
from ludus.active.selection.leep import leep
from ludus.active.selection.logme import logme
from ludus.active.selection.nce import nce

__all__ = ["h_score", "leep", "logme", "nce"]
