"""The worker process of a WorkerVectorEnv: it steps a slice of the envs in shared memory."""

from __future__ import annotations

import os
from typing import Any

from ludus.envs.errors import EnvError
from ludus.envs.shared_arrays import MASKS, SHOWN, SharedArrays
from ludus.envs.spec_json import read_env_section, spec_to_json
from ludus.envs.vector import VectorEnv, make_vector_env
from ludus.process.child_main import Answer, Handler
from ludus.process.messages import pack, unpack


def handlers() -> dict[str, Handler]:
    """Return the request handlers of this process; the empty request is a step."""
    worker = Worker()
    named = {
        "open": worker.open,
        "share": worker.share,
        "reset": worker.reset,
        "": worker.step,
        "save": worker.save,
        "load": worker.load,
        "end": worker.end,
    }
    return {name: _telling_env_errors(handler) for name, handler in named.items()}


class Worker:
    """A slice of the envs, and its rows of the shared arrays."""

    env: VectorEnv
    shared: SharedArrays

    def __init__(self) -> None:
        self.number = 0
        self.rows = slice(0, 0)

    def open(self, header: dict[str, Any], pieces: list[bytearray]) -> Answer:
        """Build the envs and return their spec."""
        first, stop = header["envs"]
        self.number, self.rows = header["number"], slice(first, stop)
        section = read_env_section(header["section"])
        self.env = make_vector_env(
            section, stop - first, header["seed"], header["name"], first_index=first
        )
        return {"spec": spec_to_json(self.env.spec)}, ()

    def share(self, header: dict[str, Any], pieces: list[bytearray]) -> None:
        """Map the parent's memory."""
        memory = header["memory"]
        self.shared = SharedArrays(memory, self.env.spec, header["num_envs"], header["num_workers"])
        os.close(memory)
        self._show("cut")

    def reset(self, header: dict[str, Any], pieces: list[bytearray]) -> None:
        """Begin an episode in every env."""
        self.env.reset(header["episode"])
        self._show()

    def step(self, header: dict[str, Any], pieces: list[bytearray]) -> None:
        """Take one step in every env."""
        # A copy: the parent writes the next actions to the same memory.
        self.env.step(self.shared["actions"][self.rows].copy())
        self._show()

    def save(self, header: dict[str, Any], pieces: list[bytearray]) -> Answer:
        """Return the state of the envs."""
        plain, data = pack(self.env.state_dict())
        return {"state": plain}, [data]

    def load(self, header: dict[str, Any], pieces: list[bytearray]) -> Answer:
        """Restore the envs; return which could not be restored."""
        self.env.load_state_dict(unpack(header["state"], pieces[0]))
        self._show("cut")
        return {"inexact": self.env.inexact_because()}, ()

    def end(self, header: dict[str, Any], pieces: list[bytearray]) -> None:
        """Close the envs."""
        if hasattr(self, "env"):
            self.env.close()

    def _show(self, *more: str) -> None:
        """Copy the envs' outputs to this worker's rows."""
        names = (*SHOWN, *more) if self.env.masks is None else (*SHOWN, *MASKS, *more)
        for name in names:
            self.shared[name][self.rows] = getattr(self.env, name)
        self.shared["has_ended"][self.number] = self.env.has_ended


def _telling_env_errors(handler: Handler) -> Handler:
    """Return the handler; it answers an EnvError with all its fields."""

    def handle(header: dict[str, Any], pieces: list[bytearray]) -> Answer | None:
        try:
            return handler(header, pieces)
        except EnvError as error:
            names = ("problem", "env", "index", "episode", "step", "field")
            return {"env_error": {name: getattr(error, name) for name in names}}, ()

    return handle
