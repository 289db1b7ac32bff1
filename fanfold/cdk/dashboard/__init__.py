"""The rows of the dashboard: each has an operator's question and the widgets that answer it."""
