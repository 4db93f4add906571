"""How one gradient step is executed: taped, compiled, or plainly; never what it does."""
