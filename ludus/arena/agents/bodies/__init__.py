"""Each file is a body: what an agent looks at a datum and the messages with."""
