"""Runs that are kept under a name, and whether a new run is slower than one of them."""
