"""The model repository on disk: its models, their versions, and repository agents."""
