"""The kinds of optimizers, one per file or in `_table.py`; `_rule.py` is the base class of their rules."""
