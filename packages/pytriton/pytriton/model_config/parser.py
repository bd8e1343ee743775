"""Configurations from the server: the names of `zmqtriton.pytriton.model_config.parser`."""

from zmqtriton.pytriton.model_config.parser import *
