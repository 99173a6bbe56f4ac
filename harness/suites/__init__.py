"""Suites that people have already, unchanged: the tests of pytest-benchmark and pytest-codspeed in fresh processes."""
