"""The calls of the HTTP API, by noun: each takes a checked request and hands back an answer."""
