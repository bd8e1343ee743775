"""Arguments of callables: the names of `zmqtriton.pytriton.proxy`."""

from zmqtriton.pytriton.proxy import *
