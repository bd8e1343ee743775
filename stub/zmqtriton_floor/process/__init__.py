"""The parts that all processes of the server have in common."""
