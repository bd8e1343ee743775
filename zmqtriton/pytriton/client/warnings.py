"""Warnings of clients: the names of `zmqtriton_addons.pytriton.client.warnings`."""

from zmqtriton_addons.pytriton.client.warnings import *
