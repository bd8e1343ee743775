"""The Python of a model: the interpreter from its configuration, and its user.

Both are found quickly. To build environments takes minutes, and is an add-on's work.
"""
