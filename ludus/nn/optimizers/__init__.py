"""The kinds of optimizers, one file each; `_rule.py` is the base class of those on flat vectors."""
