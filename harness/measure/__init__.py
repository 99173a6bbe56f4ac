"""The measuring process as its parent sees it: gates, rounds, what is left out and why."""
