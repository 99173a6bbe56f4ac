"""How many instructions a call executes."""
