"""Configurations for the server: the names of the add-on."""

from zmqtriton_addons.pytriton.model_config.generator import *
