"""Several sides, over sizes: which is best at which size, where that changes, and how times grow."""
