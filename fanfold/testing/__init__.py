"""Runs in memory on virtual time, for tests."""
