"""PPO on games that live on the device: one network plays every role, in thousands of games at once."""
