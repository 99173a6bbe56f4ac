"""Runs of several machines: one folder, the kinds of machines, and verdicts over them."""
