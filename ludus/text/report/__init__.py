"""What the text family adds to the report."""
