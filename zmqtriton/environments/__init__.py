"""The Python of a model: the interpreter from its configuration, and its user.

Both are quick. What makes environments takes minutes, and is an add-on.
"""
