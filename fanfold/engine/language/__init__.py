"""Workflow documents: how they are checked, read and evaluated."""
