"""What a report shows of duels."""
