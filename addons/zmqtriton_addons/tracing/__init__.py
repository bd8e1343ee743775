"""The tracing process: collects what other processes report, assembles traces and exports them."""
