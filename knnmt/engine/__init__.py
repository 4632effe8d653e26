"""Running a network: keys, decoder steps, and the fast paths of both.

Neighbours ask `keys.teacher_forced_keys` for the keys of given translations and `stepping.Stepper` for decoding steps.
`runtime.runtime_of` is what belongs to one network: its lock, its packed weights, its projection. The
decoders that a step can use are in the table of `decoder`. Each fast path gives what the plain one gives.
"""
