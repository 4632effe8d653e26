"""Measuring quality and speed: evaluate, tune and sweep, with their plots.

`evaluation.evaluate` compares translations with and without the memory. `tuning.tune` chooses settings on text with
reference translations. `fitting.fit_mixing` fits the mixing of a store on its memory alone. `sweep.sweep` measures
grids of settings.
"""
