"""Neighbours and model become one distribution.

A `Mixer` decides, for each row of a decoding step, which neighbours count and how much all of them count together; the
`Mixture` that it returns has the mixed ranking, the mixed distribution, and the probability of given tokens.

| mixer | decides by |
|---|---|
| `fixed.FixedMixer` | the same k, temperature and weight at every step (Khandelwal et al. 2021) |
"""
