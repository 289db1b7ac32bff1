"""The entry points of the Lambda functions."""
