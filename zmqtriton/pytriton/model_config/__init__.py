"""Descriptions of models: the names of `zmqtriton_addons.pytriton.model_config`."""

from zmqtriton_addons.pytriton.model_config import *
