"""The Python of a model: what its configuration asks for, and how that is made.

`demand` is quick and used where a model is read. The rest may take minutes: the supervisor has a
child process do it (`__main__`), `zmqtriton-ctl env prepare` does it itself.
"""
