"""Data → plotly figures: pure functions, so that a test can look at every trace and label."""
