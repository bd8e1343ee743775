"""The server, and binding callables to it: the names of `zmqtriton_addons.pytriton.triton`."""

from zmqtriton_addons.pytriton.triton import *
