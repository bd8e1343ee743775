"""Configurations of proxies in front of servers, as texts. Does no I/O."""
