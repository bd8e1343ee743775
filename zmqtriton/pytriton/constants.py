"""Numbers and names: the names of `zmqtriton_addons.pytriton.constants`."""

from zmqtriton_addons.pytriton.constants import *
