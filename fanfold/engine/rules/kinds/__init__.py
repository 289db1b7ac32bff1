"""The kinds of steps, a module each."""
