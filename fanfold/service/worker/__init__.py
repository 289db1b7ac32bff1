"""The worker, as a function and as a process: many runs at once, from a message to its settlement."""
