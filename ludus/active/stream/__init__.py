"""Edge and datacenter: a stream in one process, retraining in another, and their messages."""
