"""Cases over HTTP that are about bodies, headers and keys."""
