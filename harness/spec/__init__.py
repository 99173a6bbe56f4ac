"""The terms that claims and plans are written in."""
