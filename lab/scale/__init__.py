"""Scale beyond the box: the real code on virtual time against AWS's documented limits, and a model that goes further.

`play` carries runs by the real engine, shell, runner and submit; `profile` is what that says of one run; `flow` is the
model that is calibrated by it. Both go by the same `limits`, `gates` and `room`.
"""
