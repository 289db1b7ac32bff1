"""The tasks that come with Fanfold, and the registry of all tasks."""
