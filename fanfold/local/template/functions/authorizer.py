"""The authorizer function."""

from fanfold.service.functions.authorizer import handler

__all__ = ["handler"]
