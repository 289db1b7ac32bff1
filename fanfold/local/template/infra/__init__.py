"""The CDK app of this project."""
