"""The server's log, pushed to an OpenTelemetry collector over OTLP/HTTP.

A process follows the last lines that the supervisor keeps for `zmqtriton-ctl logs`, which are its
queue, too: what they drop before the collector has it is lost, and counted.
"""
