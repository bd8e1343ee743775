"""Cases that are about the module that models import, and its classes."""
