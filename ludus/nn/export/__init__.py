"""Networks and policies written so that NumPy alone can run them; those who run them import no torch."""
