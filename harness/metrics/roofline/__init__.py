"""What a variant reaches of what this machine can do."""
