"""Errors of the server: each has the status and the body that clients of OpenAI's API expect."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ludus.text.server.start import ServerHandle
from tests.text.server.asking import asked, error_of, lines

JOB = {"model": "tiny", "training_file": "file-x"}
CHAT = {"model": "tiny", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "param", "code", "said"),
    [
        ("GET", "/models/none", None, 404, "model", "model_not_found", "The model `none` does not"),
        ("DELETE", "/models/tiny", None, 403, "model", "model_not_deletable", "was not tuned here"),
        ("GET", "/files/file-x", None, 404, "id", "file_not_found", "No such File object: file-x"),
        ("GET", "/files/..%2F..%2Ftoken", None, 404, None, "unknown_url", "Invalid URL"),
        ("GET", "/files/../../token", None, 404, None, "unknown_url", "Invalid URL"),
        ("GET", "/files?limit=0", None, 400, "limit", "invalid_value", "greater than or equal to 1"),
        ("GET", "/files?what=1", None, 400, "what", "unknown_parameter", "Unknown parameter"),
        ("GET", "/files?after=file-x", None, 404, "after", "not_found", "no 'file-x' in this list"),
        ("GET", "/fine_tuning/jobs/x", None, 404, "fine_tune_id", "fine_tune_not_found", "Could not"),
        ("POST", "/fine_tuning/jobs/x/cancel", None, 404, "fine_tune_id", "fine_tune_not_found", "x"),
        ("POST", "/fine_tuning/jobs", {}, 400, "model", "missing_required_parameter", "'model'"),
        ("POST", "/fine_tuning/jobs", JOB, 404, "training_file", "file_not_found", "file-x"),
        ("POST", "/fine_tuning/jobs", JOB | {"model": "x"}, 404, "model", "model_not_found", "`x`"),
        (
            "POST", "/fine_tuning/jobs", JOB | {"sufix": "a"}, 400, "sufix", "unknown_parameter",
            "Unrecognized request argument supplied: sufix",
        ),
        (
            "POST", "/fine_tuning/jobs", JOB | {"hyperparameters": {"n_epochs": 0}}, 400,
            "hyperparameters.n_epochs", "invalid_value", "greater than or equal to 1",
        ),
        (
            "POST", "/fine_tuning/jobs", JOB | {"method": {"type": "reinforcement"}}, 400, "method",
            "invalid_value", "'supervised', 'dpo'",
        ),
        ("POST", "/chat/completions", {}, 400, "model", "missing_required_parameter", "'model'"),
        ("POST", "/chat/completions", CHAT | {"model": "x"}, 404, "model", "model_not_found", "`x`"),
        ("POST", "/chat/completions", CHAT | {"n": 0}, 400, "n", "integer_below_min_value", "n"),
        (
            "POST", "/chat/completions", CHAT | {"logit_bias": {"99999": 1}}, 400, None, None,
            "logit_bias names a token that the model has not",
        ),
        (
            "POST", "/chat/completions",
            CHAT | {"messages": [{"role": "user", "content": "a" * 1024}]}, 400, "messages",
            "context_length_exceeded", "maximum context length is 1024 tokens",
        ),
        ("GET", "/chat/completions", None, 405, None, "method_not_supported", "meant POST?"),
        ("PUT", "/models", None, 405, None, "method_not_supported", "meant GET?"),
        ("POST", "/files/file-x", None, 405, None, "method_not_supported", "meant DELETE or GET?"),
        ("GET", "/nothing", None, 404, None, "unknown_url", "Invalid URL (GET /v1/nothing)"),
        ("POST", "/files", None, 400, "file", "missing_required_parameter", "'file'"),
    ],
)  # fmt: skip
def test_a_mistake_is_answered_as_openai_does(
    server: ServerHandle,
    method: str,
    path: str,
    body: dict[str, Any] | None,
    status: int,
    param: str | None,
    code: str | None,
    said: str,
) -> None:
    response = (
        asked(server, method, path, json=body) if body is not None else asked(server, method, path)
    )
    error = error_of(response)
    assert (response.status_code, error["param"], error["code"]) == (status, param, code)
    assert error["type"] == "invalid_request_error"
    assert said in error["message"]


@pytest.mark.parametrize("path", ["/chat/completions", "/fine_tuning/jobs"])
def test_a_body_that_is_no_json_is_told_so(server: ServerHandle, path: str) -> None:
    headers = {"content-type": "application/json"}
    response = asked(server, "POST", path, headers=headers, content=b'{"model": ')
    assert response.status_code == 400
    assert "could not parse the JSON body" in error_of(response)["message"]


def test_a_method_that_is_not_there_comes_with_those_that_are(server: ServerHandle) -> None:
    assert asked(server, "PATCH", "/files/x").headers["allow"] == "DELETE, GET"
    assert asked(server, "DELETE", "/chat/completions").headers["allow"] == "POST"


def test_a_request_id_of_the_client_comes_back(server: ServerHandle) -> None:
    for path in ("/models", "/nothing"):
        headers = {"x-request-id": "my-17"}
        assert asked(server, "GET", path, headers=headers).headers["x-request-id"] == "my-17"
    first, second = (asked(server, "GET", "/models").headers["x-request-id"] for _ in range(2))
    assert first != second


def test_a_file_of_another_purpose_cannot_be_trained_on(server: ServerHandle) -> None:
    files = {"file": ("a.jsonl", lines()), "purpose": (None, "batch")}
    file = asked(server, "POST", "/files", files=files).json()
    response = asked(server, "POST", "/fine_tuning/jobs", json=JOB | {"training_file": file["id"]})
    error = error_of(response)
    assert (response.status_code, error["code"]) == (400, "invalid_file_purpose")


def test_an_upload_of_an_unknown_purpose_is_refused(server: ServerHandle) -> None:
    files = {"file": ("a.jsonl", b"x"), "purpose": (None, "fine_tune")}
    error = error_of(asked(server, "POST", "/files", files=files))
    assert error["param"] == "purpose"
    assert "'fine-tune'" in error["message"]


def test_a_header_repeats_a_post_without_a_second_effect(server: ServerHandle) -> None:
    headers = {"Idempotency-Key": "upload-1"}
    files = {"file": ("a.jsonl", lines()), "purpose": (None, "fine-tune")}
    first, second = (
        asked(server, "POST", "/files", headers=headers, files=files).json() for _ in range(2)
    )
    assert first == second
    files["file"] = ("a.jsonl", lines(5))
    error = error_of(response := asked(server, "POST", "/files", headers=headers, files=files))
    assert (response.status_code, error["code"]) == (409, "idempotency_key_reused")
    assert response.headers["x-should-retry"] == "false"
    body = JOB | {"training_file": first["id"], "suffix": "a:b/c d"}
    jobs = [
        asked(server, "POST", "/fine_tuning/jobs", headers={"Idempotency-Key": "job-1"}, json=body)
        for _ in range(2)
    ]
    assert jobs[0].json()["id"] == jobs[1].json()["id"]
    assert (
        asked(server, "POST", f"/fine_tuning/jobs/{jobs[0].json()['id']}/cancel").status_code == 200
    )


def test_every_error_of_the_schema_is_documented(server: ServerHandle) -> None:
    from ludus.text.server.start import ServerHandle as Handle

    whole = Handle(server.url.removesuffix("/v1"), server.token, server.child)
    schema = asked(whole, "GET", "/openapi.json").json()
    assert "422" not in json.dumps(schema)
    assert "/v1/chat/completions" in schema["paths"]
    for path in schema["paths"].values():
        for operation in path.values():
            assert {"400", "401", "404", "413", "500"} <= operation["responses"].keys()
