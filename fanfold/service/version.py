"""The version of the code, as the health call and the API's description tell it."""

VERSION = "0.1.0"
"""The same as in pyproject.toml (a test holds them together): the Lambda package has no metadata to ask."""
