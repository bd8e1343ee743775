"""The server, and binding callables to it: the names of `zmqtriton.pytriton.triton`."""

from zmqtriton.pytriton.triton import *
