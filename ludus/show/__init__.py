"""Display of a run in the terminal, its progress, and the HTML report."""
