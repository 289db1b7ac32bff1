"""Load tests: scenarios against a target, with raw data, environment and a verdict kept for each.

`python -m loadtest --help` lists them. Everything listens and aims at 127.0.0.1 unless a URL is given.
"""
