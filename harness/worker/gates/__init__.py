"""What a variant must pass before any of its times count."""
