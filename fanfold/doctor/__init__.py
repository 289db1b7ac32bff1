"""`fanfold doctor`: finds problems of a deployment, says why they matter and how to fix them.

Each check is a module; `examination` lists and runs them.
"""
