"""The process that keeps traces: others send what they know, which it puts together and writes."""
