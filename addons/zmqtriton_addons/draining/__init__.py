"""Drains: models, instances and the server are left alone by clients before something is done."""
