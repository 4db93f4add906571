"""The kinds of optimizers, a file each; `_rule.py` is what a kind that works on flat vectors fills in."""
