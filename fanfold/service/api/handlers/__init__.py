"""The calls of the HTTP API, by noun. Each takes a checked request and returns an answer."""
