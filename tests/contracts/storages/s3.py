"""Objects in a bucket of an S3-speaking server."""

from __future__ import annotations

from pathlib import Path

from ludus.store.cloud.remote import RemoteStorage
from tests.object_store import BUCKET, server


def make(path: Path) -> RemoteStorage:
    server()
    return RemoteStorage(f"s3://{BUCKET}{path}")
