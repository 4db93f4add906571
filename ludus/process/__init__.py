"""Child processes: started, talked to over pipes, and never left behind."""
