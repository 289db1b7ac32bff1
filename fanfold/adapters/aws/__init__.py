"""The engine's ports on AWS: one module per service or port."""
