"""Random programs of models and calls next to an oracle that knows each answer."""
