"""The metrics of the server, pushed to an OpenTelemetry collector by a process of its own.

`exposition.py` reads the page of metrics, `conversion.py` makes messages of it, `exporter.py` posts
them; `service.py` is the process, and `figures.py` asks it how it fares.
"""
