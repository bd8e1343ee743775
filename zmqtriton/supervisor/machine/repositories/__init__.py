"""Models as they are read from their repositories, in processes that may hang."""
