"""Tests of models, whose code is an add-on; these are the names that tests import."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zmqtriton import addons
from zmqtriton_standard.tools.testing import *

if TYPE_CHECKING:
    from zmqtriton_extras.capture.cases import Case as Case
    from zmqtriton_extras.capture.cases import captured as captured
    from zmqtriton_extras.routes.testing import RouteAnswer as RouteAnswer
else:

    def __getattr__(name: str) -> Any:
        return addons.load("testing", name)
