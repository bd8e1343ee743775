"""Configurations for the server: the names of `zmqtriton.pytriton.model_config.generator`."""

from zmqtriton.pytriton.model_config.generator import *
