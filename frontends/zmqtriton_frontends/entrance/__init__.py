"""The entrance of requests: all steps before a request is sent, whatever its protocol.

A protocol turns bytes into an `Ask`, and a response into bytes; `Entrance` does the work between.
"""
