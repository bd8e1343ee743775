"""Scripts on threads: the names of `zmqtriton.pytriton.check.utils`."""

from zmqtriton.pytriton.check.utils import *
