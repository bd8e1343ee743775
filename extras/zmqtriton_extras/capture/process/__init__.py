"""The process of captures: combines what frontends send, and writes records."""
