"""The programs of `ludus stream`, one file each: edge, datacenter, or both in one process."""
