"""Runs in the forms of services that draw times."""
