"""A family declares its words in its own folder; a word that nobody or that two declare is refused."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import Field, create_model

import ludus
from ludus.cli import app
from ludus.config import families, migrations, registry
from ludus.config.base import Settings, TrainerConfig
from ludus.core import Every, PlanError, Repeat, Run, Stage, Trainer, counters
from ludus.core.errors import LudusError
from ludus.core.plan import check_plan
from tests.command_line import Ludus, in_process

Make = Callable[..., str]


pytestmark = pytest.mark.usefixtures("own_registry")


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Make:
    """Return a function that makes a package with these files and returns its name."""

    def make(name: str, *files: str) -> str:
        module = types.ModuleType(name)
        module.__path__ = [str(tmp_path / name)]
        for file in files:
            (tmp_path / name / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name / file).touch()
        monkeypatch.setitem(sys.modules, name, module)
        return name

    return make


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ludus:
    return in_process(monkeypatch, capsys)


def plan(**loop: object) -> Repeat:
    stage = Stage(name="play", work=lambda run: None)
    inner = Repeat(name="bout", times=1, body=(stage,), **loop)  # type: ignore[arg-type]
    return Repeat(name="train", times=1, body=(inner,))


def trainer_of(module: str) -> type[Trainer]:
    class Mine(Trainer):
        def prepare(self, *, max_steps: int | None) -> None: ...
        def parts(self) -> dict[str, counters.Counters]:  # type: ignore[override]
            return {}

        def plan(self) -> Repeat:
            return plan(counter="bout")

    Mine.__module__ = module
    return Mine


def test_every_room_with_a_folder_of_kinds_has_declared_it() -> None:
    assert {room.name for room in families.families()} >= {
        "ludus.rl",
        "ludus.supervised",
        "ludus.nn",
    }
    assert families.counter_of("max_env_steps") == "env_steps"


def test_a_kind_of_a_category_that_nobody_declared_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(LudusError, match=r"named 'wraper'\. Did you mean 'wrapper'\?.*declare"):
        registry.register("wraper", "mine")
    with pytest.raises(LudusError, match="no category of kinds is named 'puzzle'"):
        registry.find("puzzle", "chess")
    with pytest.raises(LudusError, match="no category of kinds is named 'puzzle'"):
        registry.kinds("puzzle")


def test_a_file_in_a_declared_folder_is_a_kind(make: Make) -> None:
    ludus.declare(make("mine", "games/go.py", "games/_board.py"), categories={"puzzle": "games"})
    assert registry.kinds("puzzle") == ["go"]


def test_a_file_may_hold_several_kinds_in_a_folder_or_in_its_place(
    make: Make, tmp_path: Path
) -> None:
    name = make("mine", "games/go.py", "games/small.py", "riddles.py")
    two = '@register("puzzle", "dice")\nclass Dice: ...\n@register("puzzle", "coin")\nclass Coin: ...\n'
    (tmp_path / "mine/games/small.py").write_text(two)
    (tmp_path / "mine/riddles.py").write_text('@register("riddle", "sphinx")\nclass Sphinx: ...\n')
    ludus.declare(name, categories={"puzzle": "games", "riddle": "riddles"})
    small = dict.fromkeys(("coin", "dice"), "mine.games.small")
    assert families.listed("puzzle") == {**small, "go": "mine.games.go"}
    assert families.listed("riddle") == {"sphinx": "mine.riddles"}
    (tmp_path / "mine/riddles.py").write_text(
        '@register("riddle", "another")\nclass Another: ...\n'
    )
    assert families.listed("riddle") == {"another": "mine.riddles"}


def test_a_trainer_stands_in_a_folder_of_trainers_or_in_a_file_of_that_name(
    make: Make, tmp_path: Path
) -> None:
    name = make("mine", "trainers/duel.py", "trainer.py")
    (tmp_path / "mine/trainer.py").write_text(
        'import ludus\n\n\n@ludus.register_trainer("solo", example="solo.yaml")\nclass Solo: ...\n'
    )
    ludus.declare(name)
    found = families.listed("trainer")
    assert (found["duel"], found["solo"]) == ("mine.trainers.duel", "mine.trainer")
    assert "trainer" not in found


def test_a_counter_that_nobody_declared_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(PlanError, match=r"named 'bout'.*ludus\.declare"):
        check_plan(plan(counter="bout"))
    with pytest.raises(PlanError, match=r"'opt_step'\. Did you mean 'opt_steps'\?"):
        check_plan(plan(goal=("opt_step", 3)))
    with pytest.raises(PlanError, match=r"'epochs'\. Did you mean 'epoch'\?"):
        Every(3, "epochs")
    with pytest.raises(PlanError, match=r"'epochs'\. Did you mean 'epoch'\?"):
        Run().counters["epochs"]


def test_a_counter_is_had_by_the_trainers_of_its_family_and_by_no_others(make: Make) -> None:
    ludus.declare(make("mine"), counters=["bout"])
    assert Every(2, "bout").counter == "bout"
    mine = trainer_of("mine.trainers")
    assert list(mine(None).run.counters) == [*counters.SHARED, "bout"]
    assert "bout" not in trainer_of("mineral")(None).run.counters
    # What is built on a trainer of the family has it too.
    child = type("Child", (mine,), {"__module__": "__main__"})
    assert "bout" in child(None).run.counters
    with pytest.raises(PlanError, match="the counter 'bout' is that of mine's trainers"):
        check_plan(plan(counter="bout"))


def test_what_two_families_declare_is_refused_and_what_one_declares_again_is_not(
    make: Make,
) -> None:
    one, two = make("mine"), make("yours")
    for _ in range(2):
        ludus.declare(one, categories={"puzzle": "games"}, counters=["bout"])
    with pytest.raises(LudusError, match="'puzzle' is declared by mine and by yours; rename"):
        ludus.declare(two, categories={"puzzle": "games"})
    with pytest.raises(LudusError, match="the counter 'bout' is declared by mine and by yours"):
        ludus.declare(two, counters=["lap", "bout"])
    with pytest.raises(LudusError, match="the counter 'epoch' is declared by ludus and by yours"):
        ludus.declare(two, counters=["epoch"])
    with pytest.raises(LudusError, match="the category 'trainer' is declared by ludus and by"):
        ludus.declare(two, categories={"trainer": "mine"})
    ludus.declare(one, directions={"margin": "max"})
    ludus.declare(two, directions={"margin": "max"})
    told = "mine declares that max is better for the metric 'margin' and yours that min is; rename"
    with pytest.raises(LudusError, match=told):
        ludus.declare(two, directions={"margin": "min"})
    with pytest.raises(LudusError, match=r"ludus\.judge declares that min is better for .* 'loss'"):
        ludus.declare(two, directions={"loss": "max"})
    ludus.declare(one, counters=["bout"], lengths={"max_bouts": "bout"})
    with pytest.raises(LudusError, match="'max_bouts' limits bout in mine and epoch in yours"):
        ludus.declare(two, lengths={"max_bouts": "epoch"})
    # A declaration that is refused leaves nothing behind.
    assert "lap" not in counters.known()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ({"counters": ["Bout"]}, "declares the counter 'Bout'; use lower-case words"),
        ({"counters": ["bout", "turn", "bout"]}, "declares the counter 'bout' twice; name it once"),
        ({"categories": {"a game": "x"}}, "declares the category 'a game'; use lower-case words"),
        ({"lengths": {"max_bouts": "bouts"}}, "no counter is named 'bouts'"),
        ({"lengths": {"max bouts": "epoch"}}, "declares the config key 'max bouts'"),
        (
            {"directions": {"margin": "up"}},
            "declares the direction 'up' .* 'margin'; give min or max",
        ),
    ],
)
def test_a_declaration_that_cannot_work_is_refused(
    make: Make, words: dict[str, object], told: str
) -> None:
    with pytest.raises(LudusError, match=told):
        ludus.declare(make("mine"), **words)  # type: ignore[arg-type]


def test_a_family_is_declared_from_inside() -> None:
    with pytest.raises(LudusError, match="no such module is imported; give it __name__"):
        ludus.declare("nowhere_at_all")


def test_a_settings_section_that_two_families_have_is_refused() -> None:
    def settings(module: str, key: str) -> type[Settings]:
        field = (str, Field(description="Where the machine stands."))
        return create_model("Own", __base__=Settings, __module__=module, **{key: field})  # type: ignore[call-overload, no-any-return]

    def trainer(name: str, settings: type[Settings]) -> type[Trainer]:
        config = create_model(
            name, __base__=TrainerConfig, settings=(settings, Field(description="x"))
        )
        return type(name, (Trainer,), {"Config": config})

    for _ in range(2):
        registry.register_trainer("mine")(trainer("Mine", settings("mine.trainers", "table")))
    with pytest.raises(LudusError, match="section 'table' is declared by mine and by yours"):
        registry.register_trainer("yours")(trainer("Yours", settings("yours", "table")))
    with pytest.raises(LudusError, match=r"'device' is declared by ludus\.config and by yours"):
        registry.register_trainer("yours")(trainer("Yours", settings("yours", "device")))
    assert "yours" not in registry.kinds("trainer")


def test_a_command_that_two_families_have_is_refused(make: Make) -> None:
    ludus.declare(make("mine", "commands/play_all.py"))
    assert families.commands()["play-all"] == ("mine", "mine.commands.play_all")
    ludus.declare(make("yours", "commands/play_all.py"))
    with pytest.raises(LudusError, match="the command 'play-all' is declared by mine and by yours"):
        families.commands()


def test_a_command_of_ludus_is_not_taken_over(make: Make, call: Ludus) -> None:
    ludus.declare(make("mine", "commands/train.py", "commands/odd.py"))
    told = call("train", "x.yaml", "--plugin", "mine").refusal()
    assert told == "the command 'train' of mine is one of ludus's own; rename its file"


def test_a_command_without_its_function_is_told_in_a_sentence(make: Make, call: Ludus) -> None:
    ludus.declare(make("mine", "commands/odd.py"))
    assert "mine.commands.odd has no function 'odd'" in call("odd").refusal()


def test_a_command_without_its_function_is_left_out_of_the_help(make: Make, call: Ludus) -> None:
    ludus.declare(make("mine", "commands/odd.py"))
    shown = call("--help")
    assert shown.code == 0
    assert "mine.commands.odd has no function 'odd'" in shown.err
    assert "verify" in shown.out
    assert "odd" not in shown.out


def test_a_command_that_cannot_be_imported_is_told_in_a_sentence(
    make: Make, call: Ludus, tmp_path: Path
) -> None:
    ludus.declare(make("mine", "commands/broken.py"))
    (tmp_path / "mine/commands/broken.py").write_text("\n1 / 0")
    told = call("broken").refusal()
    assert "the command 'broken' of mine: cannot be imported: ZeroDivisionError" in told
    assert "broken.py, line 2" in told


def test_a_family_brings_its_own_keys_to_the_version_of_now(make: Make) -> None:
    def to_2(data: dict[str, Any]) -> dict[str, Any]:
        return {**data, "volume": 3} if "sticks" in data else data

    def renamed(data: dict[str, Any]) -> dict[str, Any]:
        return {"sticks" if key == "matches" else key: value for key, value in data.items()}

    ludus.declare(make("mine"), migrations={1: to_2}, renamed=renamed)
    old, now = {"version": 1, "kind": "mine", "matches": 21}, migrations.VERSION
    assert migrations.migrate(old, source="x") == (
        {"version": now, "kind": "mine", "sticks": 21, "volume": 3},
        [*range(2, now + 1)],
    )
    # A file of another kind, and one of now, are left alone.
    for data in ({"version": 1, "kind": "other"}, {"version": now, "kind": "mine", "sticks": 21}):
        assert migrations.migrate(dict(data), source="x")[0] == {**data, "version": now}


def test_what_nothing_read_in_version_1_is_taken_out_by_the_room_whose_key_it_is() -> None:
    sgd = {"kind": "sgd", "momentum": 0, "nesterov": True}
    entropy = {"learned": False, "target_entropy": -1.0}
    normalise = {"observations": False, "rewards": False, "clip": 5.0}
    old = {"version": 1, "optimizer": sgd, "temperature": entropy, "normalise": normalise}
    new, _ = migrations.migrate(old, source="x")
    assert new["optimizer"]["nesterov"] is False
    assert new["temperature"]["target_entropy"] is None
    assert new["normalise"] is None


def test_no_shared_file_knows_the_keys_of_a_family() -> None:
    words = ("learning_starts", "target_entropy", "with_validation", "target_return", "gymnasium")
    for file in ("config/migrations.py", "config/overrides.py", "session/resumption.py"):
        text = (Path(ludus.__file__).parent / file).read_text()
        assert not [word for word in words if word in text], file


def test_doctor_says_what_a_family_needs(make: Make, call: Ludus) -> None:
    ludus.declare(make("mine"), needs={"no_such_module": "mine-with-it", "json": "python"})
    told = call("doctor").out
    assert "no_such_module is missing: pip install 'mine-with-it'" in told
    assert "json is installed" in told
    assert "extra rl       gymnasium is installed" in told


def test_doctor_says_what_a_family_finds_on_this_machine(make: Make, call: Ludus) -> None:
    found = [("note", "boards", "none here: buy one")]
    ludus.declare(make("mine"), findings=lambda: iter(found))
    assert "\nnote boards         none here: buy one\n" in call("doctor").out


def test_a_command_of_ludus_without_a_place_comes_last_in_the_help() -> None:
    assert app._place("new") == 0
    assert app._place("brand-new") > app._place("doctor")


def test_a_kind_that_two_families_have_is_refused(make: Make) -> None:
    ludus.declare(make("mine", "trainers/zoo.py"))
    assert families.listed("trainer")["zoo"] == "mine.trainers.zoo"
    ludus.declare(make("yours", "trainers/zoo.py"))
    told = (
        r"the trainer kind 'zoo' is declared by mine\.trainers\.zoo and by yours\.trainers\.zoo; re"
    )
    with pytest.raises(LudusError, match=told):
        registry.find("trainer", "zoo")


def test_a_plugin_does_not_replace_a_kind_of_ludus(make: Make) -> None:
    ludus.declare(make("mine", "trainers/dqn.py"))
    with pytest.raises(
        LudusError, match=r"'dqn' is declared by ludus\..* and by mine\.trainers\.dqn"
    ):
        families.listed("trainer")


def test_a_kind_whose_file_cannot_be_imported_is_told_in_a_sentence(
    make: Make, tmp_path: Path
) -> None:
    ludus.declare(make("mine", "trainers/zoo.py"))
    (tmp_path / "mine" / "trainers" / "zoo.py").write_text("import no_such_library\n")
    told = r"the trainer kind 'zoo': cannot be imported: .*no_such_library.*zoo\.py, line 1"
    with pytest.raises(LudusError, match=told):
        registry.find("trainer", "zoo")


def test_a_file_that_does_not_register_the_kind_it_is_named_after_is_told(
    make: Make, tmp_path: Path
) -> None:
    ludus.declare(make("mine", "trainers/zoo.py"))
    file = tmp_path / "mine" / "trainers" / "zoo.py"
    file.write_text("import ludus\nclass Ark: ...\nludus.register('trainer', 'ark')(Ark)\n")
    told = r"mine\.trainers\.zoo should hold the trainer kind 'zoo', but registers 'ark'; a file of"
    with pytest.raises(LudusError, match=told):
        registry.find("trainer", "zoo")
