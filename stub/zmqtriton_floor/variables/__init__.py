"""Variables in the environment of every stub, which the supervisor sets."""
