"""The environment as a log: the names of `zmqtriton.pytriton.check.env_checks`."""

from zmqtriton.pytriton.check.env_checks import *
