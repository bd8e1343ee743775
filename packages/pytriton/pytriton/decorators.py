"""Decorators of inference callables: the names of `zmqtriton.pytriton.decorators`."""

from zmqtriton.pytriton.decorators import *
