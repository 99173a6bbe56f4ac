"""The share of one part in the sum of several that were timed alone."""
