"""What can be counted in the source of a variant."""
