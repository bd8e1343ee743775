"""Descriptions of models: the names of `zmqtriton.pytriton.model_config`."""

from zmqtriton.pytriton.model_config import *
