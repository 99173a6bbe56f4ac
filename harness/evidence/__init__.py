"""From the samples of a run to effects: pure functions."""
