"""Batching, queues and warm-up: the names of `zmqtriton.pytriton.model_config.common`."""

from zmqtriton.pytriton.model_config.common import *
