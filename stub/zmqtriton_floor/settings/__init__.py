"""The settings that processes of a server start with, one class for each kind of process.

The supervisor makes them once, from the options; a Bootstrap carries them to the process.
"""
