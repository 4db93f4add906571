"""Networks and policies exported so that NumPy alone can run them, without importing torch."""
