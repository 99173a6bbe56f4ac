"""Checks: something that works or does not."""
