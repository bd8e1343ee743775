"""`zmqtriton-ctl doctor`: what is wrong with a machine, an installation or a server's surroundings.

`reading` collects facts and judges nothing; `judging` derives findings from them and does no I/O.
"""
