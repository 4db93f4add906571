"""PPO on device games: one network plays every role, in thousands of games at once."""
