"""The values of --warm-starts."""

from zmqtriton.sdk.process import options

AUTO, ON, OFF = "auto", "on", "off"
#: Returns the mode in a text, and raises BadValue.
read = options.values.one_of((AUTO, ON, OFF), "It must be a mode of spare processes.")
