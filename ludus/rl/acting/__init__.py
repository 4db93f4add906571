"""How networks act: computed in NumPy where that can be, and what their outputs mean."""
