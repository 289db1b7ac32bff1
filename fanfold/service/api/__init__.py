"""The HTTP API: events of API Gateway in, answers and problems out; what a call does to the services."""
