"""Categories for scripts that filter warnings; these clients have no reason to warn."""

from __future__ import annotations


class PyTritonWarning(UserWarning):
    """The base of all warnings."""


class NotSupportedTimeoutWarning(PyTritonWarning):
    """A warning that a timeout has no effect."""
