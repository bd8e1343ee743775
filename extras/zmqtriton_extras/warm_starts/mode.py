"""The values of --warm-starts."""

from zmqtriton.sdk.process import options

AUTO, ON, OFF = "auto", "on", "off"
#: The reader of the option.
read = options.one_of((AUTO, ON, OFF), "invalid argument for --warm-starts")
