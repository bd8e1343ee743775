"""The process of the access log: takes lines of all frontends and writes them to one file."""
