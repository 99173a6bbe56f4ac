"""How long weights take from their files."""
