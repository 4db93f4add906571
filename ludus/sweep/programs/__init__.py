"""The program whose file `ludus sweep` reads."""
