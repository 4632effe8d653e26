"""Running a network: keys, decoder steps, and the fast paths of both.

Other packages use `keys.teacher_forced_keys` for the keys of given translations and `stepping.Stepper` for decoding
steps. `runtime.runtime_of` gives what belongs to one network: its lock, its packed weights, its projection. `decoder`
lists the decoders that a step can use. Each fast path has the same result as the plain one.
"""
