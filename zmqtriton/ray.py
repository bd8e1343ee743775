"""A fleet on Ray Serve, whose code is an add-on; these are the names that configurations import."""

from zmqtriton_extras.fleet.serve.application import app
from zmqtriton_extras.fleet.serve.ingress import add_servicer

__all__ = ["add_servicer", "app"]
