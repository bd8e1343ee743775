"""Clients of models: the names of `zmqtriton.pytriton.client`."""

from zmqtriton.pytriton.client import *
