"""Numbers and names: the names of `zmqtriton.pytriton.constants`."""

from zmqtriton.pytriton.constants import *
