"""Policies written so that NumPy alone can run them; nothing here that they need imports torch."""
