"""Confidence sequences."""
