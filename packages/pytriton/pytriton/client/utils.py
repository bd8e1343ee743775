"""Waiting, and URLs: the names of `zmqtriton.pytriton.client.utils`."""

from zmqtriton.pytriton.client.utils import *
