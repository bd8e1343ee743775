"""A fleet on Ray Serve: the names that configurations import from `zmqtriton.ray`."""

from zmqtriton_extras.fleet.serve.application import app
from zmqtriton_extras.fleet.serve.ingress import add_servicer

__all__ = ["add_servicer", "app"]
