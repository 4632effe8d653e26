"""Neighbours and model become one distribution.

A `mixer.Mixer` decides, for each row of a decoding step, which neighbours count and how much all of them count
together; the `Mixture` that it returns has the mixed ranking, the mixed distribution, and the probability of given
tokens.

| mixer | decides by |
|---|---|
| `fixed.FixedMixer` | the same k, temperature and weight at every step (Khandelwal et al. 2021) |
| `head_mixer.HeadMixer` with a `heads.LearnedHead` | a network: distances, certainty, how known the sentence is |
| … with a `heads.AdaptiveHead` | a network that chooses how many neighbours to use (Zheng et al. 2021) |
| … with a `heads.RobustHead` | a network that weighs neighbours by the model's confidence (Jiang et al. 2022) |

`LearnedHead` is the default. `translate.mixers` chooses the mixer of a memory; `training` fits a head.
"""
