"""Engines that are not ours, as variants: Candle's kernels, mistral.rs, llama.cpp. Each is an optional package.

An engine differs from our models in everything at once, so its numbers are context and never evidence on one choice
of architecture. Importing this package imports neither torch nor an engine.
"""
