"""The environment as a log: the names of `zmqtriton_addons.pytriton.check.env_checks`."""

from zmqtriton_addons.pytriton.check.env_checks import *
