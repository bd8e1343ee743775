"""Models, from the directories of repositories to blueprints; in processes that may hang."""
