"""Errors of the server, with the bodies that clients of OpenAI's API expect."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ludus.core.errors import LudusError

INVALID = "invalid_request_error"
"""The type of errors that the same request would meet again."""


@dataclass
class ApiError(LudusError):
    """A request is answered with this status and this error."""

    status: int
    message: str
    param: str | None = None
    """The field of the request that is wrong."""
    code: str | None = None
    type: str = INVALID
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(self.message)

    def body(self) -> dict[str, Any]:
        """Return the body of the answer."""
        return {
            "error": {
                "message": self.message,
                "type": self.type,
                "param": self.param,
                "code": self.code,
            }
        }

    def encoded(self) -> bytes:
        """Return the body as bytes."""
        return json.dumps(self.body()).encode()


def invalid(message: str, param: str | None = None, code: str | None = None) -> ApiError:
    """Return the error of a request with a wrong value."""
    return ApiError(400, message, param, code)


def no_such_model(name: str) -> ApiError:
    """Return the error of a model that the server does not have."""
    return ApiError(
        404,
        f"The model `{shown(name)}` does not exist or you do not have access to it.",
        "model",
        "model_not_found",
    )


def no_such_file(file_id: str, param: str = "id") -> ApiError:
    """Return the error of a file that the server does not have."""
    return ApiError(404, f"No such File object: {shown(file_id)}", param, "file_not_found")


def no_such_job(job_id: str) -> ApiError:
    """Return the error of a job that the server does not have."""
    return ApiError(
        404,
        f"Could not find fine tune: {shown(job_id)}",
        "fine_tune_id",
        "fine_tune_not_found",
    )


def too_large(limit: int) -> ApiError:
    """Return the error of a body over the limit."""
    return ApiError(
        413,
        f"The request is larger than the {limit} bytes that this server accepts; send less, or start"
        " the server with a higher limit.",
        code="request_too_large",
    )


def server_error(
    message: str = "The server had an error while processing your request.",
) -> ApiError:
    """Return the error of a mistake of the server."""
    return ApiError(500, message, type="server_error")


def shown(name: str) -> str:
    """Return a name of a request, short enough for a message."""
    return name if len(name) <= 120 else name[:117] + "..."
