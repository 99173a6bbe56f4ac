"""How often are verdicts wrong, and how soon are they given? The whole pipeline on differences that are known."""
