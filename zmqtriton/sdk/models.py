"""Models' configurations, as their directories and the broker have them."""

from zmqtriton.config.errors import Problem
from zmqtriton.config.files import ClientFile
from zmqtriton.config.parameters import parameter_text
from zmqtriton.findings import Severity
from zmqtriton_floor.signature import config_parameter

__all__ = ["ClientFile", "Problem", "Severity", "config_parameter", "parameter_text"]
