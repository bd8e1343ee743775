"""Tensor: the names of `zmqtriton_addons.pytriton.model_config.tensor`."""

from zmqtriton_addons.pytriton.model_config.tensor import *
