"""What a script gives in the place of what its config describes: an agent, a network's body, parts."""
