"""Measuring quality and speed: evaluate, tune, sweep, and their plots."""
