"""Errors: the names of `zmqtriton.pytriton.exceptions`."""

from zmqtriton.pytriton.exceptions import *
