"""What acts: the API, the worker and the sweeper on the engine's ports."""
