"""What each key of an edge, of a datacenter and of both in one process does."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ludus.active.programs.stream import StandaloneProgram
from ludus.active.stream.config import LinkConfig, read_stream_config
from ludus.active.stream.link import LoopbackLink
from ludus.active.stream.wire import LinkLost
from ludus.config.migrations import VERSION
from ludus.config.registry import find
from ludus.config.sections import validate
from ludus.core.errors import ConfigError, LudusError
from tests.active.stream.streams import (
    INTRODUCTION,
    SECRET,
    Recorder,
    center,
    edge,
    free_port,
    hello,
    lines,
    link,
    retraining,
    serving,
    standalone,
    stream,
    whole,
    write,
)
from tests.keys.table import changes

BOTH = "edge, datacenter"
ALL = "edge, datacenter, standalone"
# Nothing is above it, so nothing is ever asked for; and all is, so it is at every check.
NEVER, ALWAYS = 99.0, 0.000001


def watch(threshold: float, **changed: Any) -> dict[str, Any]:
    return {
        "estimators": [{"kind": "entropy", "threshold": threshold}], "after_windows": 1,
        "max_consecutive": 9, **changed,
    }  # fmt: skip


def ran(root: Path, *, lag: int = 0, host: str = "edge", **changed: Any) -> tuple[Any, Recorder]:
    """Return an edge that has come to its end, and the datacenter that it has told."""
    watched = changed.pop("state_estimation", watch(NEVER))
    at_edge, there = (watched, None) if host == "edge" else (None, watched)
    split = {key: changed[key] for key in ("seed", "data") if key in changed}
    # Few labels, as an edge may send few samples.
    training = {**retraining()["training"], **split, "initial_labels": 1, "queries": 1}
    told = Recorder(root, lag=lag, state_estimation=there, training=training)
    one = edge(root, told, state_estimation_host=host, state_estimation=at_edge, **changed)
    one.run()
    return one, told


def file_of(kind: str, **changed: Any) -> dict[str, Any]:
    return {**(standalone() if kind == "standalone" else whole(kind, 9)), **changed}


@changes(ALL, "version")
def test_a_file_of_another_version_is_refused(kind: str, tmp_path: Path) -> None:
    newer = VERSION + 1
    with pytest.raises(ConfigError, match=f"version {newer} is newer than this ludus reads"):
        read_stream_config(write(tmp_path / "new.yaml", file_of(kind, version=newer)))


@changes(ALL, "kind")
def test_the_program_that_is_named_is_run(kind: str, tmp_path: Path) -> None:
    found = read_stream_config(write(tmp_path / "a.yaml", file_of(kind)))
    assert type(found) is find("program", kind).Config


@changes(BOTH, "name")
def test_a_program_has_the_folder_of_its_name(kind: str, tmp_path: Path) -> None:
    data = standalone()
    data[kind]["name"] = "another"
    data["edge"] |= {"num_steps": 1, "state_estimation": watch(NEVER)}
    config: Any = read_stream_config(write(tmp_path / "a.yaml", data))
    StandaloneProgram(config).run(str(tmp_path / "runs"))
    names = {"edge": "edge", "datacenter": "datacenter", kind: "another"}
    assert {path.name for path in (tmp_path / "runs").iterdir()} == set(names.values())


@changes("standalone", "edge", "datacenter")
def test_both_sections_are_run_in_one_process(kind: str, tmp_path: Path) -> None:
    data = standalone()
    data["edge"] |= {"num_steps": 2, "state_estimation": watch(NEVER)}
    data["datacenter"]["training"]["model"]["widths"] = [7]
    config: Any = read_stream_config(write(tmp_path / "a.yaml", data))
    StandaloneProgram(config).run(str(tmp_path))
    assert [line["step"] for line in lines(tmp_path)] == [2]
    assert '"widths":[7]' in (tmp_path / "edge/models/update_0/model.json").read_text()


@changes("edge", "seed")
def test_other_seeds_draw_other_examples(kind: str, tmp_path: Path) -> None:
    rows = [ran(tmp_path / str(n), seed=seed)[0].rows_N for n, seed in enumerate((0, 0, 1))]
    assert rows[0].equal(rows[1])
    assert not rows[0].equal(rows[2])


@changes("edge", "data")
def test_the_training_examples_of_the_data_stream_by(kind: str, tmp_path: Path) -> None:
    data = {**stream()["data"], "test_fraction": 0.5}
    sizes = [
        ran(tmp_path / str(n), **one)[0]._examples.size
        for n, one in enumerate(({}, {"data": data}))
    ]
    assert sizes[1] < 0.8 * sizes[0]


@changes("edge", "shift")
def test_classes_come_as_the_shift_has_them(kind: str, tmp_path: Path) -> None:
    only = {"kind": "static", "weights": [0.0, 0.0, 0.0, 1.0] + [0.0] * 6}
    one, _ = ran(tmp_path, shift=only, num_steps=4)
    assert set(one._targets_N[one.rows_N].tolist()) == {3}


@changes("edge", "num_steps", "samples_per_step", "keep_samples")
def test_so_many_steps_of_so_many_samples_come_and_the_latest_are_kept(
    kind: str, tmp_path: Path
) -> None:
    given = {"num_steps": 5, "samples_per_step": 7, "check_every_steps": 1, "send_samples": 1}
    one, _ = ran(tmp_path / "a", keep_samples=100, **given)
    assert (one.simulator.step, len(one.rows_N)) == (5, 35)
    few, _ = ran(tmp_path / "b", keep_samples=20, **given)
    assert few.rows_N.tolist() == one.rows_N[-20:].tolist()


@changes("edge", "send_samples")
def test_at_most_so_many_samples_are_sent(kind: str, tmp_path: Path) -> None:
    for number in (5, 60):
        _, told = ran(tmp_path / str(number), send_samples=number, state_estimation=watch(ALWAYS))
        sent = [len(one.tensors["inputs"]) for one in told.heard("prep_retraining")]
        # The first check comes after 40 samples.
        assert sent[:2] == [min(number, 40), number]


@changes("edge", "check_every_steps")
def test_the_state_is_estimated_after_so_many_steps(kind: str, tmp_path: Path) -> None:
    for every in (2, 4):
        ran(tmp_path / str(every), check_every_steps=every)
        steps = [line["step"] for line in lines(tmp_path / str(every))]
        assert steps == list(range(every, 9, every))


@changes("edge", "state_estimation_host")
def test_the_host_that_is_named_estimates(kind: str, tmp_path: Path) -> None:
    for host, number in (("edge", 0), ("datacenter", 4)):
        _, told = ran(tmp_path / host, host=host)
        assert len(told.heard("check_state")) == number
        assert all("state/entropy" in line for line in lines(tmp_path / host))


@changes(BOTH, "state_estimation", "state_estimation.estimators")
def test_the_estimators_that_are_given_measure(kind: str, tmp_path: Path) -> None:
    watched = watch(NEVER, estimators=[{"kind": "ks", "alpha": 1e-9}])
    ran(tmp_path, host=kind, state_estimation=watched)
    assert "state/ks" in lines(tmp_path)[1]
    assert "state/entropy" not in lines(tmp_path)[1]
    with pytest.raises(ConfigError, match="'estimators' is empty"):
        ran(tmp_path / "b", host=kind, state_estimation=watch(NEVER, estimators=[]))
    with pytest.raises(LudusError, match="make the two files agree"):
        edge(tmp_path / "c", Recorder(tmp_path / "c", state_estimation=watch(NEVER))).run()


@changes(BOTH, "state_estimation.after_windows")
def test_retraining_is_asked_for_after_so_many_high_windows(kind: str, tmp_path: Path) -> None:
    for number in (1, 3):
        ran(tmp_path / str(number), host=kind, state_estimation=watch(ALWAYS, after_windows=number))
        asked = [line["retrain"] for line in lines(tmp_path / str(number))]
        assert asked == {1: [True] * 4, 3: [False, False, True, False]}[number]


@changes(BOTH, "state_estimation.max_consecutive")
def test_no_more_retrainings_than_this_follow_each_other(kind: str, tmp_path: Path) -> None:
    for number in (1, 3):
        watched = watch(ALWAYS, max_consecutive=number)
        _, told = ran(tmp_path / str(number), host=kind, state_estimation=watched)
        assert len(told.heard("prep_retraining")) == number


@changes("edge", "features_layer")
def test_features_are_what_the_layer_gives(kind: str, tmp_path: Path) -> None:
    watched = watch(NEVER, estimators=[{"kind": "mmd", "alpha": 0.011, "permutations": 99}])
    found = []
    for number, layer in enumerate((None, "layers.0")):
        ran(tmp_path / str(number), features_layer=layer, state_estimation=watched)
        found.append([line.get("state/mmd") for line in lines(tmp_path / str(number))])
    assert found[0] != found[1]
    with pytest.raises(ConfigError, match="the network has no such layer"):
        ran(tmp_path / "none", features_layer="nowhere")


@changes("edge", "wait_for_update")
def test_the_stream_stands_still_until_a_retraining_is_done_or_goes_on(
    kind: str, tmp_path: Path
) -> None:
    for waits, updates in ((True, [0, 1, 2, 3]), (False, [0, 0, 0, 1])):
        place = tmp_path / str(waits)
        ran(place, lag=2, wait_for_update=waits, state_estimation=watch(ALWAYS))
        assert [line["update"] for line in lines(place)] == updates


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_SECRET", SECRET)


def soon(is_true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 120
    while not is_true() and time.monotonic() < deadline:
        time.sleep(0.01)
    return is_true()


@changes(BOTH, "link.port")
def test_the_port_is_where_both_meet(kind: str, tmp_path: Path) -> None:
    told: list[str] = []
    with serving(tmp_path, told) as (_, reach):
        assert reach().ask("handshake", INTRODUCTION, {}).header["update"] == 0
        other = free_port()
        with pytest.raises(LinkLost, match=f"nobody answers on 127.0.0.1:{other}"):
            reach(port=other).ask("handshake", INTRODUCTION, {})


@changes(BOTH, "link.secret_file", "link.secret_variable")
def test_the_secret_is_read_from_the_file_or_the_variable(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "secret"
    file.write_text("the secret of the file\n")
    monkeypatch.setenv("ANOTHER", "the secret of the variable")
    for name, variable, expected in (
        (str(file), None, b"the secret of the file"), (None, "ANOTHER", b"the secret of the variable")
    ):  # fmt: skip
        data = whole(kind, 9)
        data["link"] |= {"secret_file": name, "secret_variable": variable}
        config: Any = read_stream_config(write(tmp_path / "a.yaml", data))
        assert config.link.secret() == expected


@changes(BOTH, "link.max_message_bytes")
def test_a_larger_message_is_refused_and_both_sides_must_agree(kind: str, tmp_path: Path) -> None:
    told: list[str] = []
    with serving(tmp_path, told, max_message_bytes=1000) as (_, reach):
        # The weights alone are larger: the edge is told what to raise.
        with pytest.raises(
            LudusError, match=r"more than link\.max_message_bytes, 1000; raise it on"
        ):
            reach().ask("handshake", INTRODUCTION, {})
        with pytest.raises(
            LudusError, match="is 2000 at the edge and 1000 here; make the two files"
        ):
            reach(max_message_bytes=2000).ask("handshake", INTRODUCTION, {})
        with pytest.raises(LudusError, match="a message normal would have"):
            reach().ask("normal", {}, {"inputs": torch.zeros(1000)})


@changes(BOTH, "link.timeout_seconds")
def test_a_message_may_take_so_long(kind: str, tmp_path: Path) -> None:
    told: list[str] = []
    if kind == "datacenter":
        with serving(tmp_path, told, timeout_seconds=0.2) as (server, _):
            with socket.create_connection(("127.0.0.1", server._link.port)):
                assert soon(lambda: any("came within 0.2 seconds" in line for line in told))
        return
    with socket.create_server(("127.0.0.1", 0)) as door:
        own = {**link(door.getsockname()[1]), "timeout_seconds": 0.2}
        silent = LoopbackLink(validate(LinkConfig, own, source="test"))
        with pytest.raises(LinkLost, match=r"came within 0\.2 seconds"):
            silent.ask("handshake", INTRODUCTION, {})


@changes("datacenter", "training")
def test_a_model_is_retrained_as_the_training_says(kind: str, tmp_path: Path) -> None:
    training = {**retraining()["training"], "max_rounds": 7}
    one = center(tmp_path, training=training)
    assert one._task(1)["config"]["max_rounds"] == 7
    training["model"] = {**training["model"], "widths": [9]}
    weights = hello(center(tmp_path / "b", training=training))[1]
    assert 9 in {one.shape[0] for one in weights.values()}


@changes("datacenter", "ends_with_edge")
def test_it_ends_with_the_last_edge_that_is_there_or_waits_for_the_next(
    kind: str, tmp_path: Path
) -> None:
    for ends in (True, False):
        told: list[str] = []
        with serving(tmp_path / str(ends), told, ends_with_edge=ends) as (server, reach):
            first, second = reach(), reach()
            first.ask("normal", {}, {})
            second.ask("normal", {}, {})
            first.ask("normal", {"is_last": True}, {})
            assert soon(lambda: server._num_here == 1)
            assert not server.is_over.is_set()
            second.ask("normal", {"is_last": True}, {})
            assert soon(lambda: server._num_here == 0)
            assert server.is_over.wait(120.0 if ends else 0.2) is ends
