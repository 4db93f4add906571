"""Security of the server: who may ask, what is let in, and that the token stays secret."""

from __future__ import annotations

import socket
import stat
from pathlib import Path

import pytest

from ludus.core.errors import ConfigError, StorageError
from ludus.text.server.access import TOKEN_VARIABLE, Access, read_token
from ludus.text.server.settings import MEBI, ServerSettings
from ludus.text.server.start import ServerHandle, start_server
from tests.text.server.asking import asked, error_of

PATHS = [("GET", "/models"), ("POST", "/chat/completions"), ("POST", "/files"), ("GET", "/nothing")]


@pytest.mark.parametrize(("method", "path"), PATHS)
@pytest.mark.parametrize("header", ["", "Bearer wrong", "Basic eDp5", "Bearer", "Bearer {token}x"])
def test_without_the_token_nothing_is_answered(
    server: ServerHandle, method: str, path: str, header: str
) -> None:
    given = header.format(token=server.token)
    response = asked(server, method, path, headers={"authorization": given})
    assert response.status_code == 401
    error = error_of(response)
    assert error["code"] == ("invalid_api_key" if header else None)
    assert response.headers["www-authenticate"] == "Bearer"
    assert server.token not in response.text


def test_the_scheme_of_the_token_has_no_case(server: ServerHandle) -> None:
    headers = {"authorization": f"bearer  {server.token}"}
    assert asked(server, "GET", "/models", headers=headers).status_code == 200


@pytest.mark.parametrize("host", ["evil.com", "127.0.0.1.evil.com", "localhost.evil.com:80", "a@b"])
def test_a_page_whose_name_points_here_is_refused(server: ServerHandle, host: str) -> None:
    for _ in range(2):
        response = asked(server, "GET", "/models", headers={"host": host})
        assert (response.status_code, error_of(response)["code"]) == (421, "invalid_host")


@pytest.mark.parametrize("host", ["localhost", "LocalHost:8000", "127.0.0.1", "[::1]:8000"])
def test_this_machine_may_be_called_by_its_names(server: ServerHandle, host: str) -> None:
    assert asked(server, "GET", "/models", headers={"host": host}).status_code == 200


def test_a_name_of_the_machine_can_be_allowed() -> None:
    access = Access("t" * 16, ["Box.Lan"])
    assert access.knows_host(b"box.lan:8000")
    assert not access.knows_host(b"box.lan.evil.com")
    assert not access.knows_host(None)


def test_no_other_origin_is_allowed(server: ServerHandle) -> None:
    headers = {"origin": "http://evil.com", "access-control-request-method": "POST"}
    response = asked(server, "OPTIONS", "/chat/completions", headers=headers)
    assert response.status_code == 405
    assert not any(name.startswith("access-control") for name in response.headers)


def test_the_server_listens_on_this_machine_alone(server: ServerHandle) -> None:
    port = int(server.url.split(":")[2].removesuffix("/v1"))
    with socket.socket() as other:
        # Were it bound to all addresses, this one would be taken.
        other.bind(("127.0.0.2", port))


def test_a_body_over_the_limit_is_refused_and_the_server_goes_on(
    server: ServerHandle,
) -> None:
    for path, size in (("/fine_tuning/jobs", 2 * MEBI), ("/chat/completions", 17 * MEBI)):
        headers = {"content-type": "application/json"}
        response = asked(server, "POST", path, headers=headers, content=b"x" * size)
        assert response.status_code == 413
        assert error_of(response)["code"] == "request_too_large"
    assert asked(server, "GET", "/models").status_code == 200


def test_an_upload_over_the_limit_is_refused_and_leaves_nothing(
    forked_servers: None, root: Path
) -> None:
    settings = ServerSettings(max_file_bytes=MEBI)
    with start_server(root, server=settings) as small:
        files = {"file": ("a", b"x" * 2 * MEBI), "purpose": (None, "fine-tune")}
        response = asked(small, "POST", "/files", files=files)
        assert (response.status_code, error_of(response)["code"]) == (413, "request_too_large")

        def chunks() -> object:
            yield from [b"x" * MEBI] * 2

        headers = {"content-type": "application/json"}
        response = asked(small, "POST", "/fine_tuning/jobs", headers=headers, content=chunks())
        assert response.status_code == 413
    assert not (root / "files").exists()


def test_the_token_is_made_once_and_only_its_owner_can_read_it(tmp_path: Path) -> None:
    token = read_token(tmp_path)
    path = tmp_path / "token"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(token) >= 40
    assert read_token(tmp_path) == token
    assert [one.name for one in tmp_path.iterdir()] == ["token"]


def test_a_token_that_others_can_read_is_refused(tmp_path: Path) -> None:
    read_token(tmp_path)
    (tmp_path / "token").chmod(0o640)
    with pytest.raises(ConfigError, match="can be read by other users"):
        read_token(tmp_path)


def test_a_token_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x" * 20)
    (tmp_path / "token").symlink_to(tmp_path / "secret")
    with pytest.raises(StorageError):
        read_token(tmp_path)


def test_the_token_can_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, "given-by-the-environment")
    assert read_token(tmp_path) == "given-by-the-environment"
    assert not (tmp_path / "token").exists()
    for bad in ("", "short", "with a space in it", "é" * 20):
        monkeypatch.setenv(TOKEN_VARIABLE, bad)
        with pytest.raises(ConfigError, match=f"{TOKEN_VARIABLE} holds no token") as caught:
            read_token(tmp_path)
        assert bad == "" or bad not in str(caught.value)
