"""Who plays: scripted players and networks."""
