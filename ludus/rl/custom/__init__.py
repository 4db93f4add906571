"""Objects that a script passes instead of config sections: an agent, a network body, parts."""
