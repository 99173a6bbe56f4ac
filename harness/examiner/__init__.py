"""A process that runs no foreign code and judges the outputs of timed calls."""
