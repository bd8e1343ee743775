"""The one error of this package, so that a load can tell a wrong configuration from a fault."""

from __future__ import annotations

from zmqtriton_floor.errors import InvalidArgument


class ConfigError(InvalidArgument):
    """Raised when a configuration cannot be read or is wrong; the text is the load's reason."""
