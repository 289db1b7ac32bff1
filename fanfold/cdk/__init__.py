"""The constructs that a stack is composed of."""
