"""Warnings of clients: the names of `zmqtriton.pytriton.client.warnings`."""

from zmqtriton.pytriton.client.warnings import *
