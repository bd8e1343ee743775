"""The parts that every process of the server has alike."""
