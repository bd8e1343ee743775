"""What the classifier sees of a text: which words it has, those behind a denial apart."""

import numpy as np


def counts(ids, mask, size, denial):
    """(n, 2 * size) of (n, length): in the second half the words that `denial` stands before."""
    seen = np.zeros((len(ids), 2 * size), np.float32)
    rows = np.arange(len(ids))
    is_denied = np.zeros(len(ids), bool)
    for here, there in zip(ids.T, mask.T):
        # A number beyond the vocabulary is of another recipe than these weights.
        there = there * (here < size)
        seen[rows, np.minimum(here, size - 1) + size * is_denied] += there
        is_denied = here == denial
    return seen
