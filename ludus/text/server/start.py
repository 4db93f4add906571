"""A server for a trainer: `ludus serve` as a child process, on a free port, that ends with its parent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ludus.core.errors import LudusError
from ludus.process.child import Child, ChildFailed
from ludus.text.models.new_model import NewModelConfig
from ludus.text.server.settings import EngineSettings, ServerSettings

_CHILD = "ludus.text.server.child"


@dataclass(frozen=True)
class ServerHandle:
    """A server in a child process."""

    url: str
    """The base URL of the API, which ends with /v1."""
    token: str = field(repr=False)
    """The key that requests carry."""
    child: Child

    @property
    def pid(self) -> int:
        """Process id."""
        return self.child.pid

    def close(self) -> None:
        """End the server in order; open jobs go on when the root is served again."""
        self.child.close()

    def __enter__(self) -> ServerHandle:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def start_server(
    root: str | Path,
    *,
    new_models: Mapping[str, NewModelConfig] | None = None,
    models: Mapping[str, Path] | None = None,
    engine: EngineSettings | None = None,
    server: ServerSettings | None = None,
    timeout: float = 300.0,
) -> ServerHandle:
    """Start a server of this root, and return when it answers; raise LudusError if it cannot be served.

    New models, and those of directories, are added unless the root has them. The server ends with the thread
    that calls this.
    """
    child = Child(_CHILD, name=f"the server of {root}", timeout=timeout)
    header = {
        "do": "start",
        "root": str(Path(root).absolute()),
        "new_models": {
            name: config.model_dump(mode="json") for name, config in (new_models or {}).items()
        },
        "models": {name: str(Path(path).absolute()) for name, path in (models or {}).items()},
        "engine": asdict(engine or EngineSettings()),
        "server": asdict(server or ServerSettings()),
    }
    try:
        answer, _ = child.ask(header)
    except ChildFailed as error:
        child.close()
        raise LudusError(str(error)) from None
    except BaseException:
        child.kill()
        raise
    return ServerHandle(answer["url"], answer["token"], child)
