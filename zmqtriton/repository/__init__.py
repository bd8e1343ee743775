"""The model repository on disk: which models and versions there are, and their environments."""
