"""The first page's pictures: a strip for each claim, columns for the teams, and a row for each claim that unfolds."""
