"""What a variant holds in memory."""
