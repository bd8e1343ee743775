"""Batching, queues and warm-up: the names of `zmqtriton_addons.pytriton.model_config.common`."""

from zmqtriton_addons.pytriton.model_config.common import *
