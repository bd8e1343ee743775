"""`make attacks SEED=1 MINUTES=20`: hostile clients beside fifty honest ones; see __main__.py."""
