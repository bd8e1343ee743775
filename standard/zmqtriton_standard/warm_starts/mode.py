"""The values of --warm-starts."""

from zmqtriton.sdk.process import options

AUTO, ON, OFF = "auto", "on", "off"


def read(value: str) -> str:
    """Return the mode. Raises BadValue."""
    if value not in (AUTO, ON, OFF):
        raise options.BadValue(f"It must be auto, on or off. Got {value}")
    return value
