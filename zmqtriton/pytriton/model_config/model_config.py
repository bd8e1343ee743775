"""ModelConfig: the names of `zmqtriton_addons.pytriton.model_config.model_config`."""

from zmqtriton_addons.pytriton.model_config.model_config import *
