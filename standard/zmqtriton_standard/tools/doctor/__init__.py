"""`zmqtriton-ctl doctor`: faults of a machine, an installation or a server's surroundings.

Most modules have one subject each, whose functions yield what is wrong with it; `examination` lists
them. What a test prepares lies below a `root` that takes the place of /.
"""
