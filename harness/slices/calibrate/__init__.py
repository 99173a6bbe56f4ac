"""How often are verdicts wrong, and does the next run agree? The whole workbench on comparisons of known outcome."""
