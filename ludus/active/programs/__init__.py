"""What `ludus stream` runs, a file a kind: edge, datacenter, or both in one process."""
