"""What the report shows of runs of active learning, a file a section."""
