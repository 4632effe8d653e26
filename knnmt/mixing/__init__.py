"""Neighbours and model become one distribution.

A `mixer.Mixer` decides, for each row of a decoding step, which neighbours count and how much all of them count
together; the `Mixture` that it returns has the mixed ranking, the mixed distribution, and the probability of given
tokens.

| mixer | decides by |
|---|---|
| `fixed.FixedMixer` | the same k, temperature and weight at every step (Khandelwal et al., ICLR 2021) |
| `head_mixer.HeadMixer` with `heads.LearnedHead` | distances, agreement, the model's certainty, coverage |
| … with `heads.AdaptiveHead` | distances and counts: the meta-k network (Zheng et al., ACL 2021) |
| … with `heads.RobustHead` | distances and the model's confidence (Jiang et al., EMNLP 2022) |

`coverage` knows which n-grams a memory has, `training` fits heads, `reasons` tells why a head decided as it did.
"""
