"""Scripts on threads: the names of `zmqtriton_addons.pytriton.check.utils`."""

from zmqtriton_addons.pytriton.check.utils import *
