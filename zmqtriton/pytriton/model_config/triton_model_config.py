"""Full configurations: the names of the add-on."""

from zmqtriton_addons.pytriton.model_config.triton_model_config import *
