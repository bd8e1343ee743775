"""`zmqtriton check`: finds everything that is wrong with model repositories, without a server.

`repositories` puts together what `models` finds in each directory. Nothing here decides what a
server accepts: the rules are those of the load path.
"""
