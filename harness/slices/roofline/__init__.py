"""How much of this machine's peak a call reaches."""
