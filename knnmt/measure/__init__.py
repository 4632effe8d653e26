"""Measuring quality and speed: evaluate, tune, sweep, and their plots.

`evaluation.evaluate` compares translations with and without the memory, `tuning.tune` chooses settings on text with
known translations, `fitting.fit_mixing` fits a store's mixing on its memory alone, `sweep.sweep` measures whole grids.
"""
