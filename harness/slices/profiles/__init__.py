"""Sampled stacks of each variant, as flamegraphs."""
