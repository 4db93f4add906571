"""What stands around one walk: the session, saving, signals, the fingerprint, the logger."""
