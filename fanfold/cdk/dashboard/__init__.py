"""The dashboard's rows: each a question an operator has, and the widgets that answer it."""
