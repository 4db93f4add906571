"""Expert iteration: selecting the episodes to imitate, and replacing guesses by true labels."""
