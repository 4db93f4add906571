"""What the report shows of runs of agents that meet, a file a section."""
