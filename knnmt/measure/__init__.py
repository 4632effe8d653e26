"""How good and how fast: evaluate, tune, sweep, and the plots of each."""
