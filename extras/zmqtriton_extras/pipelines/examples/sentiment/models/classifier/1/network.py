"""The features of a text: which words it has, with those after a denial apart."""

import numpy as np


def counts(ids, mask, size, denial):
    """Return (n, 2 * size) of (n, length): the second half counts the words after a `denial`."""
    seen = np.zeros((len(ids), 2 * size), np.float32)
    rows = np.arange(len(ids))
    is_denied = np.zeros(len(ids), bool)
    for here, there in zip(ids.T, mask.T):
        # a number beyond the vocabulary belongs to another recipe than these weights
        there = there * (here < size)
        seen[rows, np.minimum(here, size - 1) + size * is_denied] += there
        is_denied = here == denial
    return seen
