"""The tracing process: collects what other processes report, assembles traces and exports them."""

#: The name of the socket at which the page of metrics reads exemplars.
EXEMPLARS = "exemplars"
