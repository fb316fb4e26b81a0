"""Benchmarks that ``benchmark_data/`` of the source repository built into a folder."""
