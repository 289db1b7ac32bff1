"""Presigned URLs name a host that knows the bucket, in every region and from its first minute on."""

from __future__ import annotations

from urllib.parse import urlsplit

import boto3
import pytest

from fanfold.adapters.aws.s3 import S3Blobs
from fanfold.engine.payload import BlobRef
from fanfold.service.aws_clients import Aws

REF = BlobRef(key="acme/r1/s1/input", bytes=1, sha256="0" * 64)


async def url_in(region: str, endpoint_url: str | None = None) -> str:
    session = boto3.Session(aws_access_key_id="A", aws_secret_access_key="s", region_name=region)
    aws = Aws(session, threads=1, endpoint_url=endpoint_url)
    try:
        return await S3Blobs(aws, "a-bucket").presign(REF, seconds=60)
    finally:
        aws.close()


OPENED_BEFORE_2019 = ("us-east-1", "eu-west-1", "ap-southeast-2")
OPENED_SINCE = ("eu-south-2", "af-south-1", "il-central-1", "mx-central-1")


@pytest.mark.parametrize("region", [*OPENED_BEFORE_2019, *OPENED_SINCE])
async def test_it_is_the_regions_own_host(region: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    host = urlsplit(await url_in(region)).hostname
    assert host == "a-bucket.s3" + (f".{region}" if region != "us-east-1" else "") + ".amazonaws.com"


async def test_an_emulator_is_asked_by_path(monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await url_in("eu-west-1", "http://127.0.0.1:4566")).startswith("http://127.0.0.1:4566/a-bucket/acme/r1/")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:4567")
    assert (await url_in("eu-west-1")).startswith("http://127.0.0.1:4567/a-bucket/acme/r1/")
