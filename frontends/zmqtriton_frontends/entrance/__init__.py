"""The entrance of requests: all that happens to one, whatever its protocol, until it is sent.

A protocol turns bytes into an `Ask`, and an answer into bytes; `Entrance` does what lies between.
"""
