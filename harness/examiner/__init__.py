"""A process that runs no foreign code and checks the outputs of timed calls."""
