"""ModelConfig: the names of `zmqtriton.pytriton.model_config.model_config`."""

from zmqtriton.pytriton.model_config.model_config import *
