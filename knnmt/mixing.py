"""The mathematics of kNN-MT as pure functions.

p(y) = weight · p_knn(y) + (1 − weight) · p_model(y),   p_knn(y) ∝ Σ exp(−distance / temperature) over neighbours of y.

Nothing here is larger than the vocabulary or than k × k: neighbours' probability is added at their tokens only.
"""

import torch


def neighbour_weights(distances: torch.Tensor, temperature: float) -> torch.Tensor:
    """Weights [n, k] that sum to 1 a row, from squared distances [n, k]; infinite distance: no weight.

    A row without any neighbour is all zeros.
    """
    scores = -distances / temperature
    return torch.nan_to_num(torch.softmax(scores, dim=-1), nan=0.0)


def token_masses(tokens: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """p_knn of each neighbour's token, [n, k]: the summed weight of all neighbours in its row with that token."""
    same = tokens[:, :, None] == tokens[:, None, :]  # [n, k, k]
    return torch.einsum("njk,nk->nj", same.to(weights.dtype), weights)


def mix(logits: torch.Tensor, tokens: torch.Tensor, weights: torch.Tensor, weight: float) -> torch.Tensor:
    """Logarithms of the mixed distribution, [n, vocabulary].

    `logits` [n, vocabulary] are the model's; `tokens` and `weights` [n, k] are the neighbours'. Where a row has no
    neighbour, the model stands alone.
    """
    found = weights.sum(dim=-1, keepdim=True) > 0.5  # [n, 1]: a row's weights sum to 1 or to 0
    share = torch.where(found, weight, 0.0)
    smallest = torch.finfo(torch.float32).tiny  # keeps the logarithm finite, so that beams can be compared
    mixed = torch.log_softmax(logits.float(), dim=-1) + torch.log((1.0 - share).clamp_min(smallest))
    added = torch.log((share * token_masses(tokens, weights)).clamp_min(smallest))  # [n, k]
    return mixed.scatter(-1, tokens, torch.logaddexp(mixed.gather(-1, tokens), added))
