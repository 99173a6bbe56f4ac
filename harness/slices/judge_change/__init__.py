"""A change that a program proposes: accepted, refused, or why nobody can tell."""
