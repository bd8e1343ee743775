"""The process of captures: puts together what frontends send, and writes records."""
