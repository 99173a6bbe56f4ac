"""Suites that people have already, unchanged: of pytest-benchmark, pytest-codspeed or asv, in fresh processes."""
