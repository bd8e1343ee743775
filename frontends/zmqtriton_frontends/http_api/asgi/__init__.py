"""The ASGI side: requests, routes, access control and error documents of the Falcon application."""
