"""Running a network fast: packed weights, the projection to the vocabulary, the decoder step by step.

Neighbours ask `stepping.Stepper` for steps. Each fast path gives what the plain one gives.
"""
