"""What `workbench new` copies: files to begin with, which are right as they are."""
