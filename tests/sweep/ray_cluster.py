"""A cluster of several machines, as its user would have started it: all of them are this one.

`python -m tests.sweep.ray_cluster FOLDER CPUS GPUS ...` starts a node for each pair, prints the address, and
loses its last node for each line that it reads.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ludus.sweep.cluster.warden import end_session

TOKEN = "0123456789abcdef" * 4


class JoinedCluster:
    """The tests' side."""

    def __init__(self, folder: Path, *nodes: tuple[int, int]) -> None:
        token = folder / "token"
        token.write_text(TOKEN)
        self.environment = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
        words = [str(number) for node in nodes for number in node]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.sweep.ray_cluster", str(folder), *words],
            env={**os.environ, **self.environment, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            start_new_session=True,
        )  # fmt: skip
        self.pid = self._process.pid
        self.address = self._line()

    def _line(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()

    def lose(self) -> None:
        """Kill everything on its last machine."""
        assert self._process.stdin
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        assert self._line() == "lost"

    def close(self) -> None:
        """Kill all of it; `ray stop` would end every cluster of this machine."""
        end_session(self.pid)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe
            pipe.close()


def main() -> None:
    """Be the cluster."""
    from ray._private import utils
    from ray.cluster_utils import Cluster

    # It would write the address below /tmp/ray, for every program of this machine to find.
    utils.write_ray_address = lambda *given: None
    folder, numbers = sys.argv[1], [int(word) for word in sys.argv[2:]]
    cluster = Cluster()
    nodes = [
        cluster.add_node(
            num_cpus=cpus, num_gpus=gpus, temp_dir=f"{folder}/ray", include_dashboard=False,
            object_store_memory=80 * 2**20,
        )
        for cpus, gpus in zip(numbers[::2], numbers[1::2], strict=True)
    ]  # fmt: skip
    print(cluster.address, flush=True)
    for _ in sys.stdin:
        nodes.pop().kill_all_processes(check_alive=False, allow_graceful=False)
        print("lost", flush=True)


if __name__ == "__main__":
    main()
