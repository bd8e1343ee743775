"""A first model: the names of `zmqtriton.pytriton.check.add_sub`."""

from zmqtriton.pytriton.check.add_sub import *
