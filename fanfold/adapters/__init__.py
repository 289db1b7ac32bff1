"""The engine's ports, on AWS and in memory."""
