"""Combining neighbours and the model's prediction into one distribution.

For each row of a decoding step, a `mixer.Mixer` chooses the neighbours and their total weight. It returns a `Mixture`
with the mixed ranking, the mixed distribution, and the probability of given tokens.

| mixer | decides by |
|---|---|
| `fixed.FixedMixer` | the same k, temperature and weight at every step (Khandelwal et al., ICLR 2021) |
| `head_mixer.HeadMixer` with `heads.LearnedHead` | distances, agreement, the model's certainty, coverage |
| … with `heads.AdaptiveHead` | distances and counts: the meta-k network (Zheng et al., ACL 2021) |
| … with `heads.RobustHead` | distances and the model's confidence (Jiang et al., EMNLP 2022) |

`coverage` knows which n-grams a memory contains, `training` fits heads, `reasons` explains the decisions of a head.
"""
