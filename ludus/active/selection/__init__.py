"""Transferability scores: how well a pre-trained model would learn new labels.

    from ludus.active.selection import h_score, leep, logme, nce

Each takes NumPy arrays or tensors and returns one number; higher is better. `logme` is the function, not the
module of its name.
"""

from ludus.active.selection.logme import logme
from ludus.active.selection.scores import h_score, leep, nce

__all__ = ["h_score", "leep", "logme", "nce"]
