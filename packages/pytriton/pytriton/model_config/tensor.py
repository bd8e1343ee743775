"""Tensor: the names of `zmqtriton.pytriton.model_config.tensor`."""

from zmqtriton.pytriton.model_config.tensor import *
