"""APIs of the web that others have defined, as extensions of the HTTP frontend."""
