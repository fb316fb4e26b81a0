"""Benchmarks anyone can run: every speed is a ratio to its peer, measured in the same run."""
