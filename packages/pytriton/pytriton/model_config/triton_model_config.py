"""Full configurations: the names of `zmqtriton.pytriton.model_config.triton_model_config`."""

from zmqtriton.pytriton.model_config.triton_model_config import *
