"""A name in a config finds a class: built in, installed by others, or a user's own, and nothing else."""

from __future__ import annotations

import importlib.metadata
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.config import families, registry, strict_yaml
from ludus.config.base import StrictConfig, from_data
from ludus.config.migrations import VERSION
from ludus.core.errors import ConfigError, LudusError
from tests.command_line import Ludus, in_process, small_config
from tests.faults.warm import WarmProcess

PLUGIN = '''
"""A trainer in one file: it adds up whole numbers."""

from ludus.config.base import Positive, TrainerConfig
from ludus.core import Repeat, Stage
from ludus.config.registry import register_trainer
from ludus.session.trainer import Trainer


class SumConfig(TrainerConfig):
    """What decides a sum."""

    max_epochs: Positive
    """How many numbers to add."""
    start: int
    """The number to start from."""


class Total:
    def __init__(self, value):
        self.value = value

    def state_dict(self):
        return {"value": self.value}

    def load_state_dict(self, state):
        self.value = state["value"]


@register_trainer("adding", example="adding.yaml")
class Adding(Trainer):
    Config = SumConfig

    def prepare(self, *, max_steps):
        self.total = Total(self.config.start)

    def plan(self):
        add = Stage(name="add", work=self.add)
        epoch = Repeat(name="epoch", times=self.config.max_epochs, counter="epoch", body=(add,))
        show = Stage(name="show", work=self.show, note="the sum")
        return Repeat(name="train", times=1, body=(epoch, show))

    def parts(self):
        return {"total": self.total}

    def add(self, run):
        self.total.value += run.counters["epoch"] + 1

    def show(self, run):
        print("the sum is", self.total.value, file=__import__("sys").stderr)
'''


pytestmark = pytest.mark.usefixtures("own_registry")


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ludus:
    return in_process(monkeypatch, capsys)


def write_plugin(folder: Path, module: str = "adding_plugin") -> dict[str, Any]:
    """Write the plugin and its example beside it, and return what the example holds."""
    settings = small_config().settings.model_dump()
    example = {"version": VERSION, "kind": "adding", "name": "sum", "seed": 0}
    example |= {"settings": settings, "max_epochs": 4, "start": 100}
    (folder / f"{module}.py").write_text(PLUGIN)
    (folder / "adding.yaml").write_text("# Add up.\n" + strict_yaml.dump(example))
    return example


# Built-in kinds


def test_built_in_kinds_are_found_by_listing_their_folders() -> None:
    folder = Path(ludus.__file__).parent
    folders = {
        "trainer": "*/trainers",
        "program": "*/programs",
        "model": "nn/models",
        "dataset": "data/sources",
    }
    folders |= {"logger": "session/loggers", "env": "envs/kinds", "wrapper": "envs/wrappers"}
    folders |= {"network": "rl/networks", "game": "games/rules", "player": "games/players"}
    folders |= {"strategy": "active/strategies", "oracle": "active/oracles"}
    folders |= {"state_estimation": "active/drift/estimators", "shift": "active/drift/shifts"}
    folders |= {"optimizer": "nn/optimizers", "schedule": "nn/schedules"}
    folders |= {"protocol": "arena/protocols", "scenario": "arena/scenarios"}
    folders |= {"arena_agent": "arena/agents/kinds", "body": "arena/agents/bodies"}
    folders |= {"analyser": "arena/analysers", "parallel_env": "arena/parallel_envs"}
    folders |= {"sampler": "sweep/samplers", "pruner": "sweep/pruners"}
    folders |= {"seed_pruner": "sweep/seed_pruners", "sweep_engine": "sweep/engines"}
    folders |= {"provider": "text/providers", "text_scenario": "text/scenarios"}
    folders |= {"text_analyser": "text/analysers"}
    assert sorted(folders) == sorted(families.categories())
    for category, pattern in folders.items():
        files = [*folder.glob(f"{pattern}/*.py")] or [*folder.glob(f"{pattern}.py")]
        modules = {
            ".".join(["ludus", *path.relative_to(folder).with_suffix("").parts])
            for path in files
            if path.stem[0] != "_"
        }
        assert families.listed(category)
        assert modules <= set(families.listed(category).values())


def test_a_file_put_into_a_folder_is_a_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "models").mkdir(parents=True)
    (tmp_path / "models" / "resnet.py").touch()
    (tmp_path / "models" / "_blocks.py").touch()
    monkeypatch.setitem(
        families._ROOMS, "ludus.nn", replace(families._ROOMS["ludus.nn"], folder=tmp_path)
    )
    assert families.listed("model") == {"resnet": "ludus.nn.models.resnet"}
    table = '@register("model", "{}")\nclass Small:\n    pass\n'
    (tmp_path / "models" / "_table.py").write_text(table.format("small") + table.format("tiny"))
    assert families.listed("model") == {
        "resnet": "ludus.nn.models.resnet",
        "small": "ludus.nn.models._table",
        "tiny": "ludus.nn.models._table",
    }


@pytest.mark.parametrize("category", sorted(families.categories()))
def test_every_listed_kind_is_a_class_that_knows_its_kind_and_has_a_config(category: str) -> None:
    for kind in families.listed(category):
        found = registry.find(category, kind)
        assert found.kind == kind
        assert issubclass(found.Config, StrictConfig)


def test_an_unknown_kind_is_told_with_the_nearest_name_and_the_way_to_a_plugin() -> None:
    with pytest.raises(
        ConfigError, match=r"Did you mean 'mlp'\? A kind of your own is found with --"
    ):
        registry.find("model", "mlpp")
    with pytest.raises(ConfigError, match="of your own is found with --plugin"):
        registry.find("trainer", "zzz")


@pytest.mark.parametrize(
    "kind", ["os.system", "ludus.cli.commands", "base", "_table", "..", "/etc/passwd"]
)
def test_a_config_can_never_make_ludus_import_something(kind: str) -> None:
    small_config()  # what reading any config imports
    before = set(sys.modules)
    with pytest.raises(ConfigError, match="no trainer kind is named"):
        from_data({"version": VERSION, "kind": kind}, source="x")
    with pytest.raises(ConfigError, match="no dataset kind is named"):
        small_config(data={"kind": kind})
    assert set(sys.modules) == before


# Names


@pytest.mark.covers("002-M3")
def test_a_registered_class_is_found_under_its_kind() -> None:
    @registry.register("model", "mine")
    class Mine:
        kind = ""

    assert registry.find("model", "mine") is Mine
    assert Mine.kind == "mine"
    assert "mine" in registry.kinds("model")


def test_a_taken_name_is_refused() -> None:
    @registry.register("model", "mine")
    class Mine:
        """The first."""

    with pytest.raises(
        LudusError, match=r"'mine' is taken by .*Mine; register yours under another"
    ):

        @registry.register("model", "mine")
        class Other:
            """The second."""

    assert registry.find("model", "mine") is Mine


def test_a_built_in_name_is_taken_even_before_it_is_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(registry._REGISTERED, "trainer", {})
    with pytest.raises(LudusError, match=r"'supervised' is taken by ludus.supervised"):

        @registry.register_trainer("supervised", example="/tmp/mine.yaml")
        class Mine:
            """It would stand in for the built-in one."""

    assert registry._EXAMPLES == {}


def test_a_module_may_be_loaded_again() -> None:
    for _ in range(2):

        @registry.register("model", "mine")
        class Mine:
            """The same, defined again."""

    assert registry.find("model", "mine") is Mine


@pytest.mark.covers("002-M3")
def test_trainer_type_is_the_name_of_a_registered_trainer() -> None:
    assert ludus.TrainerType("supervised") == "supervised"
    assert isinstance(ludus.TrainerType("supervised"), str)
    assert "supervised" in ludus.TrainerType.names()
    with pytest.raises(ConfigError, match="Did you mean 'supervised'"):
        ludus.TrainerType("supervized")

    @ludus.register_trainer("mine")
    class Mine:
        """Registering is all it takes."""

    assert ludus.TrainerType("mine") in ludus.TrainerType.names()


def test_a_trainer_without_an_example_says_how_to_give_one() -> None:
    @ludus.register_trainer("mine")
    class Mine:
        """It has no YAML."""

    with pytest.raises(ConfigError, match=r"has no example file; register it with example="):
        ludus.example("mine")

    @ludus.register_trainer("yours", example="yours.yaml")
    class Yours:
        """Its YAML is in another folder."""

    with pytest.raises(
        ConfigError, match=r"'yours' is missing: /.*/config/yours\.yaml; a relative"
    ):
        ludus.example("yours")


def test_a_kind_that_no_loaded_plugin_has_is_refused_with_the_places_it_may_have(
    tmp_path: Path,
) -> None:
    write_plugin(tmp_path)
    sys.path.insert(0, str(tmp_path))
    ludus.load_plugin("adding_plugin")
    with pytest.raises(
        ConfigError, match=r"--plugin adding_plugin has none of that name: .*trainer"
    ):
        registry.find("trainer", "zzz")
    with pytest.raises(ConfigError, match=r"has none of that name: register it in that module, or"):
        registry.find("model", "zzz")


# Kinds of others


def offer(monkeypatch: pytest.MonkeyPatch, *values: str) -> None:
    """Pretend that installed packages offer these modules as plugins."""
    group = "ludus.plugins"
    entries = [importlib.metadata.EntryPoint("plugin", value, group) for value in values]

    def entry_points(*, group: str) -> list[importlib.metadata.EntryPoint]:
        return entries if group == "ludus.plugins" else []

    monkeypatch.setattr(importlib.metadata, "entry_points", entry_points)


def test_an_installed_package_offers_kinds_through_an_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = write_plugin(tmp_path, "installed_plugin")
    sys.path.insert(0, str(tmp_path))
    offer(monkeypatch, "installed_plugin")
    assert "adding" in registry.kinds("trainer")
    config = ludus.example("adding", start=3)
    assert config.start == 3
    assert from_data(example, source="x").kind == "adding"


def test_a_built_in_kind_does_not_need_the_installed_plugins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    offer(monkeypatch, "no_such_package_at_all")
    assert ludus.example("supervised").kind == "supervised"


def test_a_broken_installed_plugin_is_named_each_time_it_is_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_plugin.py").write_text("x = 1\nraise OSError('no disk')\n")
    sys.path.insert(0, str(tmp_path))
    offer(monkeypatch, "broken_plugin")
    for _ in range(2):
        with pytest.raises(LudusError) as caught:
            registry.find("trainer", "adding")
        assert "the installed plugin broken_plugin: cannot be imported: OSError" in str(
            caught.value
        )
        assert "broken_plugin.py, line 2" in str(caught.value)


# Kinds of one's own


@pytest.mark.covers("001-M3")
def test_a_trainer_of_ones_own_in_one_file_does_all_that_a_built_in_one_does(
    tmp_path: Path, warm: WarmProcess
) -> None:
    write_plugin(tmp_path)
    plugin = ("--plugin", "adding_plugin")
    new = warm.command("new", "adding", *plugin, cwd=tmp_path)
    assert new.out == (tmp_path / "adding.yaml").read_text()
    plan = warm.command("plan", "-", *plugin, cwd=tmp_path, stdin=new.out)
    assert plan.out == "train\n  epoch x 4\n    add\n  show (the sum)\n"
    trained = warm.command("train", "adding.yaml", *plugin, "start=5", "--json", cwd=tmp_path)
    assert trained.json["status"] == "finished"
    assert trained.json["counters"]["epoch"] == 4
    assert "the sum is 15" in trained.err
    longer = warm.command("resume", "runs/sum", "max_epochs=6", *plugin, "--json", cwd=tmp_path)
    assert longer.json["counters"]["epoch"] == 6
    assert "the sum is 26" in longer.err
    # A list of runs needs no code of theirs.
    (row,) = warm.command("runs", "--json", cwd=tmp_path).json["runs"]
    assert (row["name"], row["kind"], row["status"]) == ("sum", "adding", "finished")


def test_a_plugin_is_also_found_from_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plugin(tmp_path)
    sys.path.insert(0, str(tmp_path))
    ludus.load_plugin("adding_plugin")
    trainer = ludus.build_trainer(ludus.example("adding", max_epochs=3, start=0))
    assert trainer.fit(root=str(tmp_path / "runs")).counters["epoch"] == 3
    assert trainer.total.value == 6  # type: ignore[attr-defined]


def test_a_run_of_a_plugin_cannot_be_resumed_without_it(
    call: Ludus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plugin(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert call("train", "adding.yaml", "--plugin", "adding_plugin", "--json").code == 0
    del registry._REGISTERED["trainer"]["adding"]
    told = call("resume", "runs/sum").refusal()
    assert "no trainer kind is named 'adding'" in told
    assert "--plugin" in told


@pytest.mark.parametrize(
    ("module", "content", "told"),
    [
        ("plugin_a", "def (", "SyntaxError: invalid syntax (plugin_a.py, line 1)"),
        ("plugin_b", "\nimport no_such_thing", "No module named 'no_such_thing'"),
        ("plugin_c", "from ludus import nothing", "cannot import name 'nothing' from 'ludus'"),
        ("plugin_d", "\n\n1 / 0", "plugin_d.py, line 3"),
        ("plugin_e", "import plug", "No module named 'plug'"),
        (
            "plugin_f",
            "import ludus\n@ludus.register_trainer('supervised')\nclass A: ...",
            "the trainer kind 'supervised' is taken by ludus.supervised.trainers.supervised",
        ),
        (
            "plugin_g",
            "from ludus.config.base import StrictConfig\nclass A(StrictConfig):\n    x: int = 3",
            "A.x has a default value; remove it",
        ),
        ("plugin_h", None, "no such module; give a dotted name that Python can import from here"),
        ("plugin_h.x", None, "no such module"),
        ("plugin.py", None, "--plugin plugin.py: no such file"),
        ("json.py", "", "another module is named json"),
        ("./plugin", None, "not the name of a module"),
        ("", None, "not the name of a module"),
        ("..", None, "not the name of a module"),
    ],
)
def test_a_plugin_that_cannot_be_imported_is_told_in_a_sentence(
    call: Ludus,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: str,
    content: str | None,
    told: str,
) -> None:
    if content is not None:
        (tmp_path / f"{module.removesuffix('.py')}.py").write_text(content)
    monkeypatch.chdir(tmp_path)
    message = call("new", "supervised", "--plugin", module).refusal()
    assert told in message
    assert "\n" not in message
