"""The typed clients of the HTTP API."""
