"""A store over fsspec: its connection, the lease on a run, and what waits to be sent."""
