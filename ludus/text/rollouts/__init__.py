"""Episodes of text: prompts, messages, rewards, statistics, transcripts."""
