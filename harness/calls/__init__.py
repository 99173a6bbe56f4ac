"""Any function as a subject: where it is, what it is called with, and whether its answers are right."""
