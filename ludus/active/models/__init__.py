"""The models of an active run: one or several, their heads and features, and committees of them."""
