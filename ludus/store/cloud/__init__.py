"""Object storage through fsspec: the connection, the lease on a run, and local spool files."""
