"""Decorators of inference callables: the names of `zmqtriton_addons.pytriton.decorators`."""

from zmqtriton_addons.pytriton.decorators import *
