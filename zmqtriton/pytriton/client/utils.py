"""Waiting, and URLs: the names of `zmqtriton_addons.pytriton.client.utils`."""

from zmqtriton_addons.pytriton.client.utils import *
