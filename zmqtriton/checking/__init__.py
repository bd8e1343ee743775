"""`zmqtriton check`: all that is wrong with model repositories, without serving them.

`command` is called by main; `repositories` puts together what `models` finds in each directory.
Nothing here decides what a server would take: the rules are those of the load path.
"""
