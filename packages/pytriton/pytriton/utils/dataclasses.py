"""Dataclasses set by name: the names of `zmqtriton.pytriton.utils.dataclasses`."""

from zmqtriton.pytriton.utils.dataclasses import *
