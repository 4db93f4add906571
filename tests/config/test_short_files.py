"""Short ways to a complete config: a preset's name, a file with a base, another kind of a section, 1e5."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

import ludus
from ludus.config import families, migrations
from ludus.config.base import from_data, read_config
from ludus.config.bases import digest_of, expand
from ludus.config.registry import example_path, find, kinds, section_files
from ludus.core.errors import ConfigError
from tests.command_line import Ludus, in_process

PPO: dict[str, Any] = yaml.safe_load(example_path("ppo").read_text())


def short(path: Path, **content: object) -> Path:
    """Write a file with the base ppo and these keys."""
    path.write_text(yaml.safe_dump({"version": migrations.VERSION, "base": "ppo", **content}))
    return path


def test_the_name_of_a_preset_stands_for_its_file() -> None:
    assert read_config("dqn-acrobot") == ludus.example("dqn-acrobot")


def test_a_file_of_that_name_goes_before_the_preset(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ppo").write_text(ludus.example("ppo").replace(seed=99).to_yaml())
    monkeypatch.chdir(tmp_path)
    assert read_config("ppo").seed == 99


def test_a_preset_of_another_task_gives_the_run_its_own_name() -> None:
    assert read_config("ppo", ["env.id=Acrobot-v1"]).name == "ppo"
    assert read_config("ppo", ["seed=3", "settings.threads=2"]).name == PPO["name"]
    assert read_config("ppo", ["env.id=Acrobot-v1", "name=mine"]).name == "mine"


def test_a_misspelt_preset_is_answered_with_its_name() -> None:
    with pytest.raises(ConfigError, match=r"no such file or preset.*Did you mean 'ppo'"):
        read_config("ppoo")


def test_a_file_with_a_base_says_only_what_differs(tmp_path: Path) -> None:
    path = short(tmp_path / "lander.yaml", env={"id": "Acrobot-v1"}, gamma=0.5)
    config: Any = read_config(path)
    whole: Any = ludus.example("ppo")
    assert (config.env.id, config.gamma, config.name) == ("Acrobot-v1", 0.5, "lander")
    assert config == whole.replace(**{"env.id": "Acrobot-v1", "gamma": 0.5, "name": "lander"})


def test_a_base_may_be_a_file_next_to_it_that_has_a_base_itself(tmp_path: Path) -> None:
    short(tmp_path / "first.yaml", gamma=0.5, name="first")
    second = tmp_path / "second.yaml"
    second.write_text(f"version: {migrations.VERSION}\nbase: first.yaml\nseed: 7\n")
    config: Any = read_config(second)
    assert (config.gamma, config.seed, config.name) == (0.5, 7, "second")


def test_bases_that_are_each_other_s_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "loop.yaml"
    path.write_text(f"version: {migrations.VERSION}\nbase: loop.yaml\n")
    with pytest.raises(ConfigError, match="one upon another"):
        read_config(path)


def test_a_base_works_in_a_dict_too() -> None:
    config: Any = from_data(
        {"version": migrations.VERSION, "base": "ppo", "seed": 5}, source="the config"
    )
    assert config == ludus.example("ppo", seed=5)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"sed": 1}, r"'sed' is not a key of its base\. Did you mean 'seed'"),
        ({"learning_rate": 1.0}, r"Did you mean 'optimizer\.learning_rate'"),
        ({"env": {"identity": "x"}}, r"'env\.identity' is not a key of its base"),
        ({"base": "ppoo"}, r"neither a preset nor a file\. Did you mean 'ppo'"),
        ({"base": 3}, r"'base' must be the name"),
        ({"kind": "dqn"}, r"'kind' is dqn, but the base ppo is of kind ppo"),
        ({"version": 1}, r"a file with a base is not migrated"),
        ({"base": "ppo#00000000"}, r"the base ppo has changed"),
        ({"gamma": "high"}, r"'gamma' must be a number"),
    ],
)
def test_a_mistake_in_a_file_with_a_base_is_one_sentence(
    tmp_path: Path, content: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        read_config(short(tmp_path / "short.yaml", **content))


def test_a_base_named_with_its_digest_is_the_one_that_was_meant(tmp_path: Path) -> None:
    name = f"ppo#{digest_of(PPO)}"
    assert read_config(short(tmp_path / "a.yaml", base=name)).seed == PPO["seed"]


def test_another_kind_fills_its_section_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    config: Any = read_config("ppo", ["optimizer.momentum=0.5", "optimizer.kind=sgd"])
    assert config.optimizer.model_dump() == {
        "kind": "sgd", "learning_rate": 0.1, "momentum": 0.5, "nesterov": False, "weight_decay": 0.0,
    }  # fmt: skip
    assert "optimizer is sgd now, with learning_rate 0.1, momentum 0.9" in capsys.readouterr().err


def test_another_kind_keeps_what_its_preset_leaves_open() -> None:
    config = ludus.example("supervised", **{"model.inputs": 64, "model.kind": "mlp"})
    assert (config.model.outputs, config.model.widths) == (10, [64, 64])
    with pytest.raises(ConfigError, match=r"'model\.inputs' must be a whole number"):
        ludus.example("supervised", **{"model.kind": "mlp"})


def test_a_kind_of_a_file_with_a_base_fills_its_section(tmp_path: Path) -> None:
    path = short(tmp_path / "a.yaml", learning_rate_schedule={"kind": "cosine", "final": 0.1})
    config: Any = read_config(path)
    assert config.learning_rate_schedule.model_dump() == {
        "kind": "cosine", "warmup_steps": 0, "final": 0.1, "total_steps": None,
    }  # fmt: skip


@pytest.mark.parametrize("category", sorted(section_files()))
def test_every_preset_of_a_section_has_keys_of_its_kind_with_valid_values(category: str) -> None:
    presets = yaml.safe_load(section_files()[category].read_text())
    assert category in families.categories()
    assert set(presets) <= set(kinds(category))
    for kind, values in presets.items():
        config: Any = getattr(find(category, kind), "Config", find(category, kind))
        assert values.keys() <= config.model_fields.keys(), kind
        problems = []
        try:
            config.model_validate({"kind": kind, **values})
        except ValueError as error:
            problems = [one["type"] for one in getattr(error, "errors", list)()]
        # What only the user can know may be missing, nothing else be wrong.
        assert set(problems) <= {"missing"}, (kind, problems)


def test_a_count_may_be_written_as_a_power_of_ten(capsys: pytest.CaptureFixture[str]) -> None:
    config: Any = read_config("supervised", ["max_opt_steps=1e2", "optimizer.learning_rate=1e-3"])
    assert (config.max_opt_steps, config.optimizer.learning_rate) == (100, 0.001)
    with pytest.raises(ConfigError, match="must be a whole number"):
        read_config("supervised", ["max_epochs=1.5"])


@pytest.fixture
def command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Ludus:
    monkeypatch.chdir(tmp_path)
    return in_process(monkeypatch, capsys)


def test_a_run_without_a_name_of_its_own_is_numbered(tmp_path: Path, command: Ludus) -> None:
    words = ("train", "supervised", "max_epochs=1", "settings.display=none", "--seed", "3",
             "learning_rate_schedule.kind=constant")  # fmt: skip
    first, second = command(*words), command(*words)
    assert (first.code, second.code) == (0, 0), second.err
    assert "runs/supervised is a run already" in second.err
    assert "runs/supervised-2" in second.err
    assert "seed: 3" in (tmp_path / "runs" / "supervised-2" / "config.yaml").read_text()


def test_explain_says_which_values_come_from_the_base(tmp_path: Path, command: Ludus) -> None:
    short(tmp_path / "a.yaml", seed=4)
    out = command("explain", "a.yaml", "seed", "gamma", "name").out
    assert "seed = 4  (from a.yaml)" in out
    assert "(from the base ppo)" in out
    assert "name = a  (from the name of a.yaml)" in out


def test_a_kind_of_text_fills_its_section_and_keeps_what_all_have() -> None:
    config: Any = read_config("pure_text_ei", ["protocol.kind=nip", "scenario.kind=arithmetic"])
    assert (config.protocol.max_message_rounds, config.protocol.shared_reward) == (4, True)
    assert config.scenario.num_steps == [1, 2]
    config = read_config("pure_text_ei", ["provider.kind=in_process"])
    assert config.provider.max_rows == 512
    assert list(config.provider.new_models) == ["tiny"]


def test_a_section_of_a_kind_without_a_preset_stands_for_itself(tmp_path: Path) -> None:
    path = short(tmp_path / "a.yaml", optimizer={"kind": "of_a_plugin", "own_key": 1})
    whole = expand(yaml.safe_load(path.read_text()), source=str(path))
    assert whole["optimizer"] == {"kind": "of_a_plugin", "own_key": 1}
