"""AWS's SDK without what a cold start would pay for in vain.

botocore alone: boto3 adds its resources and S3's transfer manager, a third of the import, and we use neither. Import
this module when the first client is made.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import cache
from typing import Any

from botocore.config import Config
from botocore.loaders import Loader
from botocore.session import get_session

__all__ = ["Config", "client_factory"]


class _Loader(Loader):
    """botocore's loader, which does not look into the folders of all services before it loads one of them."""

    def list_available_services(self, type_name: str) -> list[str]:
        """Every service there is, whether or not it has data of the type: two listings instead of 3,500 looks."""
        return _services(tuple(self.search_paths))


@cache
def _services(paths: tuple[str, ...]) -> list[str]:
    return sorted({name for path in paths if os.path.isdir(path) for name in os.listdir(path)})


def client_factory() -> Callable[..., Any]:
    """What makes clients, as `boto3.Session().client` does; with a session of its own."""
    session = get_session()
    session.register_component("data_loader", _Loader())
    factory: Callable[..., Any] = session.create_client
    return factory
