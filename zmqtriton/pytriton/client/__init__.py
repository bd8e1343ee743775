"""Clients of models: the names of `zmqtriton_addons.pytriton.client`."""

from zmqtriton_addons.pytriton.client import *
