"""The pytest plugin: its options, what it collects, progress on the terminal."""
