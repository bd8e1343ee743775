"""Templates of chats, which come with models and run in processes that can be ended."""
