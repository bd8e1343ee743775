"""Routes of models, whose code is an add-on; these are the names that a routes.py imports."""

from zmqtriton_extras.routes.backend.api import *
