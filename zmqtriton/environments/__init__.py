"""The Python of a model: what its configuration asks for, and how that is made.

`demand` is quick and used when a model is read. The rest may take minutes: for the supervisor a
child process does it (`__main__`), and `zmqtriton-ctl env prepare` does it itself.
"""
