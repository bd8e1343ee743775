"""The supervisor's log, its last lines, and the errors that end there."""
