"""Tensors by a short name, and what models say of their inputs, for all scripts.

Like all scripts here this is code as users write it. It is recorded with the import of the other
package, so nothing but the public names may stand in it.
"""

import json

import numpy as np

from zmqtriton.pytriton.model_config import ModelConfig, Tensor

PLAIN = ModelConfig(batching=False)
DECOUPLED = ModelConfig(batching=False, decoupled=True)


def tensors(*names, dtype=np.float32, shape=(-1,), **more):
    return [Tensor(name=name, dtype=dtype, shape=shape, **more) for name in names]


def text(value):
    """A document as an array of one string."""
    return np.array([json.dumps(value).encode()], dtype=object)


def row(value):
    """The same as a batch of one."""
    return text(value)[np.newaxis]


def kind(array):
    """Type and shape of an array."""
    return [str(array.dtype), list(array.shape)]
