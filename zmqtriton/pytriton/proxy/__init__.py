"""Arguments of callables: the names of `zmqtriton_addons.pytriton.proxy`."""

from zmqtriton_addons.pytriton.proxy import *
