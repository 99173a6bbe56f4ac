"""A judged run as text, and beside another run."""
