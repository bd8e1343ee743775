"""Errors of clients: the names of `zmqtriton.pytriton.client.exceptions`."""

from zmqtriton.pytriton.client.exceptions import *
