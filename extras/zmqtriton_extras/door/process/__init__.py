"""The process of the door, a frontend that the supervisor starts with `--zmq-door`."""
