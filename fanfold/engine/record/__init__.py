"""What is recorded of a run, and the messages that travel about it."""
