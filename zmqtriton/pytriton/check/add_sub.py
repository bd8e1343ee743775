"""A first model: the names of `zmqtriton_addons.pytriton.check.add_sub`."""

from zmqtriton_addons.pytriton.check.add_sub import *
