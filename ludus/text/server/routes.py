"""The rarer routes, by FastAPI: their schema is at /openapi.json, and their errors are as OpenAI's."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Route

from ludus.core.errors import LudusError
from ludus.text.server.chat_request import SCHEMA
from ludus.text.server.chat_route import PATH
from ludus.text.server.engine import TextEngine
from ludus.text.server.errors import ApiError, server_error
from ludus.text.server.file_routes import file_routes
from ludus.text.server.job_routes import job_routes
from ludus.text.server.model_routes import model_routes
from ludus.text.server.schemas import ChatCompletion, ErrorBody
from ludus.version import VERSION

_PREFIX, _SCHEMA_PATH = "/v1", "/openapi.json"
_ERRORS = {
    400: "The request has a wrong value.",
    401: "The bearer token is missing or wrong.",
    404: "There is nothing of this name.",
    405: "The path does not take this method.",
    409: "The Idempotency-Key came with another request before.",
    413: "The body is too large.",
    429: "Too many requests or tokens.",
    500: "The server failed.",
}


def make_routes(engine: TextEngine) -> FastAPI:
    """Return the application of all routes but chat completions."""
    app = FastAPI(
        title="ludus serve",
        version=VERSION,
        docs_url=None,
        redoc_url=None,
        # OpenAI has these paths without a slash at the end.
        redirect_slashes=False,
        responses={
            code: {"model": ErrorBody, "description": text} for code, text in _ERRORS.items()
        },
    )
    routers = (model_routes(engine), file_routes(engine), job_routes(engine))
    for router in routers:
        app.include_router(router, prefix=_PREFIX)
    answer_http = partial(_answer_http, routes=[one for router in routers for one in router.routes])
    app.add_exception_handler(ApiError, _answer_known)
    app.add_exception_handler(LudusError, _answer_mistake)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_exception_handler(HTTPException, answer_http)
    app.add_exception_handler(Exception, _answer_bug)
    app.openapi = lambda: _schema(app)  # type: ignore[method-assign]
    return app


def _answer(error: ApiError) -> JSONResponse:
    return JSONResponse(error.body(), error.status, dict(error.headers))


async def _answer_known(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ApiError)
    return _answer(error)


async def _answer_mistake(request: Request, error: Exception) -> JSONResponse:
    return _answer(server_error(str(error)))


async def _answer_invalid(request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    return _answer(_first(error.errors()))


def _first(errors: Sequence[Any]) -> ApiError:
    """Return the first problem of a request as OpenAI words it."""
    kind, place, message = errors[0]["type"], errors[0]["loc"], errors[0]["msg"]
    param = ".".join(str(part) for part in place[1:] if _is_field(part)) or None
    if kind == "json_invalid":
        return ApiError(400, f"We could not parse the JSON body of your request: {message}.")
    if kind == "missing":
        name = param or "body"
        return ApiError(
            400, f"Missing required parameter: '{name}'.", param, "missing_required_parameter"
        )
    if kind == "extra_forbidden":
        text = f"Unrecognized request argument supplied: {place[-1]}"
        return ApiError(400, text, param, "unknown_parameter")
    return ApiError(400, f"Invalid value for '{param}': {message}.", param, "invalid_value")


def _is_field(part: object) -> bool:
    """Return whether a part of a place is in the request: pydantic adds the names of types."""
    is_type = isinstance(part, str) and (not part.isidentifier() or part in ("int", "float", "str"))
    return not is_type


async def _answer_bug(request: Request, error: Exception) -> JSONResponse:
    return _answer(server_error())


async def _answer_http(
    request: Request, error: Exception, *, routes: Sequence[BaseRoute]
) -> JSONResponse:
    assert isinstance(error, HTTPException)
    if isinstance(error.__cause__, ApiError):
        # FastAPI wraps what is raised while it reads a body.
        return _answer(error.__cause__)
    method, path = request.method, request.url.path
    allowed = _methods_of(path, routes)
    if error.status_code in (404, 405) and allowed:
        text = (
            f"Not allowed to {method} on {path}. (HINT: Perhaps you meant {' or '.join(allowed)}?)"
        )
        headers = {"allow": ", ".join(allowed)}
        return _answer(ApiError(405, text, code="method_not_supported", headers=headers))
    if error.status_code == 404:
        return _answer(ApiError(404, f"Invalid URL ({method} {path})", code="unknown_url"))
    return _answer(ApiError(error.status_code, str(error.detail)))


def _methods_of(path: str, routes: Sequence[BaseRoute]) -> list[str]:
    """Return the methods that a path takes."""
    found = {PATH: {"POST"}, _SCHEMA_PATH: {"GET"}}.get(path, set())
    for route in routes:
        if isinstance(route, Route) and route.path_regex.match(path.removeprefix(_PREFIX)):
            found |= route.methods or set()
    return sorted(found)


def _schema(app: FastAPI) -> dict[str, Any]:
    """Return the schema of all routes, chat completions included."""
    if app.openapi_schema:
        return app.openapi_schema
    schema = get_openapi(title=app.title, version=app.version, routes=app.routes)
    schemas = schema["components"]["schemas"]
    answer = ChatCompletion.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas |= answer.pop("$defs", {})
    schemas |= {"ChatCompletion": answer, "ChatCompletionRequest": SCHEMA}
    schema["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    schema["security"] = [{"token": []}]
    problem = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorBody"}}}
    errors = {
        str(code): {"description": text, "content": problem} for code, text in _ERRORS.items()
    }
    request = {"schema": {"$ref": "#/components/schemas/ChatCompletionRequest"}}
    found = {"schema": {"$ref": "#/components/schemas/ChatCompletion"}}
    events = {"schema": {"type": "string"}}
    schema["paths"][PATH] = {
        "post": {
            "summary": "Sample the next message of a conversation.",
            "operationId": "create_chat_completion",
            "requestBody": {"required": True, "content": {"application/json": request}},
            "responses": {
                "200": {
                    "description": "The samples.",
                    "content": {"application/json": found, "text/event-stream": events},
                },
                **errors,
            },
        }
    }
    # Validation answers 400 here, and FastAPI writes 422 into each operation.
    for operation in (one for path in schema["paths"].values() for one in path.values()):
        operation["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    app.openapi_schema = schema
    return schema
