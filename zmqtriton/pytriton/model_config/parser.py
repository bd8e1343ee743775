"""Configurations from the server: the names of `zmqtriton_addons.pytriton.model_config.parser`."""

from zmqtriton_addons.pytriton.model_config.parser import *
