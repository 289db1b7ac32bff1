"""The tasks of this project: whatever is put here, steps can call."""
