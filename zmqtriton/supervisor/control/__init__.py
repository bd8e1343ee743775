"""Control calls of clients, models and operators, and their answers."""
