"""Write what an agent has learned as a policy that NumPy alone can run."""
