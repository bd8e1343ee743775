"""Errors of clients: the names of `zmqtriton_addons.pytriton.client.exceptions`."""

from zmqtriton_addons.pytriton.client.exceptions import *
