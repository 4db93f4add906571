"""Export of an agent's policy to a form that runs with NumPy alone."""
