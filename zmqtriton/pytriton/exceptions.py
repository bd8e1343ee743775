"""Errors: the names of `zmqtriton_addons.pytriton.exceptions`."""

from zmqtriton_addons.pytriton.exceptions import *
