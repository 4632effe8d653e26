"""Benchmarks: ratios of two things measured in one run, since machines are noisy. `make bench` runs them all."""
