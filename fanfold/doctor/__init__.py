"""`fanfold doctor`: what is wrong with a deployment that is up, why it matters, and what to do about it.

Each check is a module named after what it looks at; `examination` has the list of them and runs them.
"""
