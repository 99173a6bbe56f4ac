"""Results anywhere: runs and baselines on any file system that fsspec knows, and the index of a folder of many runs."""
