"""The HTTP API: API Gateway's events in, answers and problems out."""
