"""The backend `tensorflow`: SavedModels."""
