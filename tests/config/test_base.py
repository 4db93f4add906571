"""A config hides nothing: every key is given, every mistake is told, at once and with its place."""

from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import pytest
from hypothesis import given, settings, strategies as st

import ludus
from ludus.config import families, migrations, registry, strict_yaml
from ludus.config.base import (
    LoggerSection,
    StrictConfig,
    TrainerConfig,
    change,
    example,
    from_data,
    key_paths,
    override,
    read_config,
    validate,
)
from ludus.config.sections import annotation_of, registered
from ludus.core.errors import ConfigError
from ludus.session.logger import Logger
from tests.command_line import MODEL, Ludus, in_process, small_config, small_file
from tests.config.older import as_version_4
from tests.rl.small import NORMALISE

CONFIGS = sorted((Path(__file__).parents[2] / "configs").glob("*.yaml"))
KINDS = [
    (category, kind) for category in families.categories() for kind in registry.kinds(category)
]


@pytest.fixture
def data() -> dict[str, Any]:
    """A complete config as nested data, free to be spoilt."""
    return copy.deepcopy(small_config().model_dump())


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ludus:
    return in_process(monkeypatch, capsys)


def refusal(data: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        from_data(data, source="my.yaml")
    return str(caught.value)


def sections(annotation: Any, seen: set[type]) -> Iterator[type[StrictConfig]]:
    """Yield every section that can stand in a value of this annotation, the nested ones too."""
    if isinstance(annotation, type) and issubclass(annotation, StrictConfig):
        if annotation not in seen:
            seen.add(annotation)
            yield annotation
            for field in annotation.model_fields.values():
                yield from sections(annotation_of(field), seen)
        return
    for argument in get_args(annotation):
        yield from sections(argument, seen)


@pytest.mark.covers("000-S2", "001-M1")
@pytest.mark.parametrize(("category", "kind"), KINDS, ids=[f"{c} {k}" for c, k in KINDS])
def test_no_key_of_any_kind_has_a_default_and_each_has_a_sentence(category: str, kind: str) -> None:
    found = list(sections(registry.find(category, kind).Config, set()))
    assert found
    for section in found:
        for name, field in section.model_fields.items():
            assert field.is_required(), f"{section.__name__}.{name}"
            assert field.description, f"{section.__name__}.{name}"
            assert field.description.strip().endswith("."), f"{section.__name__}.{name}"
        assert section.model_config["extra"] == "forbid"
        assert section.model_config["frozen"]


def test_the_walk_above_reaches_the_nested_sections() -> None:
    found = {section.__name__ for section in sections(ludus.Trainer.Config, set())}
    assert {
        "SupervisedConfig",
        "Settings",
        "CheckpointSettings",
        "OptimizerConfig",
        "ScheduleConfig",
    } <= found
    assert {"FitEvaluationConfig", "ParameterGroupConfig"} <= found


def test_a_section_with_a_default_cannot_be_written() -> None:
    with pytest.raises(AssertionError, match=r"Hidden.size has a default value"):

        class Hidden(StrictConfig):
            size: int = 3
            """How large it is."""


def test_a_section_with_an_unexplained_key_cannot_be_written() -> None:
    with pytest.raises(AssertionError, match="needs a sentence"):

        class InMemoryRuntime(StrictConfig):
            size: int


def test_a_config_cannot_be_changed_in_place() -> None:
    with pytest.raises(ValueError, match="frozen"):
        small_config().seed = 3


# Mistakes in a file


def test_an_unknown_key_is_told_with_the_nearest_right_name(data: dict[str, Any]) -> None:
    data["batchsize"] = data.pop("batch_size")
    message = refusal(data)
    assert "'batchsize' is not a key here. Did you mean 'batch_size'?" in message
    assert "'batch_size' is missing; it is: How many examples each batch holds" in message


def test_an_unknown_key_of_a_nested_section_is_told_with_its_path(data: dict[str, Any]) -> None:
    data["settings"]["checkpoint"]["keep_lats"] = 3
    data["optimizer"]["lerning_rate"] = 0.1
    message = refusal(data)
    assert "'settings.checkpoint.keep_lats' is not a key here. Did you mean 'keep_last'?" in message
    assert "'optimizer.lerning_rate' is not a key here. Did you mean 'learning_rate'?" in message


@pytest.mark.covers("001-M1")
@pytest.mark.parametrize(
    "path",
    [
        "seed",
        "settings",
        "settings.display",
        "settings.checkpoint.keep_last",
        "optimizer.beta1",
        "evaluation.patience",
        "model.widths",
        "data.test_fraction",
        "learning_rate_schedule.warmup_steps",
    ],
)
def test_a_missing_key_says_what_it_means(data: dict[str, Any], path: str) -> None:
    section, owner = data, small_config()
    *above, key = path.split(".")
    for part in above:
        section, owner = section[part], getattr(owner, part)
    del section[key]
    meaning = " ".join(str(type(owner).model_fields[key].description).split())
    assert refusal(data) == f"my.yaml: '{path}' is missing; it is: {meaning}"


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("batch_size", "1", 'must be a whole number (found "1")'),
        ("batch_size", True, "must be a whole number (found true)"),
        ("batch_size", 1.0, "must be a whole number (found 1.0)"),
        ("batch_size", None, "must be a whole number (found null)"),
        ("batch_size", 0, "must be greater than or equal to 1 (found 0)"),
        ("optimizer.learning_rate", "1e-3", 'must be a number (found "1e-3")'),
        ("optimizer.learning_rate", True, "must be a number (found true)"),
        ("optimizer.learning_rate", float("nan"), "must be a finite number (found NaN)"),
        ("drop_last", "on", 'must be true or false (found "on")'),
        ("drop_last", 1, "must be true or false (found 1)"),
        ("name", 12, "must be text (found 12)"),
        (
            "engine",
            "maybe",
            "must be 'auto', 'eager', 'tape', 'graph' or 'compiled' (found \"maybe\")",
        ),
        ("model.widths", 8, "must be a list (found 8)"),
        ("model.widths.0", "8", 'must be a whole number (found "8")'),
        ("settings", 3, "must be a section with keys of its own (found 3)"),
        ("settings", [1], "must be a section with keys of its own"),
        ("evaluation", 5, "must be a section with keys of its own (found 5)"),
        (
            "optimizer",
            None,
            "must be a section with a 'kind', one of: adam, adamw, given, muon, radam",
        ),
        (
            "optimizer",
            {},
            "must be a section with a 'kind', one of: adam, adamw, given, muon, radam",
        ),
        ("model", {}, "must be a section with a 'kind', one of:"),
        ("model", "mlp", "must be a section with a 'kind', one of:"),
        ("settings.loggers.0", 3, "must be a section with a 'kind', one of:"),
        ("loss", "hinge", "must be 'cross_entropy', 'mse'"),
        ("seed", 2**63, "must be less than"),
    ],
)
def test_a_wrong_type_is_told_and_never_converted(
    data: dict[str, Any], path: str, value: Any, told: str
) -> None:
    data["settings"]["loggers"] = [{"kind": "csv"}]
    section: Any = data
    *above, key = path.split(".")
    for part in above:
        section = section[part]
    section[int(key) if isinstance(section, list) else key] = value
    assert f"my.yaml: '{path}' {told}" in refusal(data)


def test_a_whole_number_is_a_number_too(data: dict[str, Any]) -> None:
    data["max_grad_norm"] = 1
    config = from_data(data, source="x")
    assert type(config.max_grad_norm) is float
    data["max_grad_norm"] = 1.0
    assert from_data(data, source="x").digest() == config.digest()


def test_all_mistakes_of_a_file_are_told_in_one_error(data: dict[str, Any]) -> None:
    data |= {"seed": -1, "batch_size": "many", "colour": "red"}
    del data["loss"]
    data["optimizer"]["eps"] = 0
    data["model"]["activation"] = "rely"
    data["data"]["shuffle"] = True
    data["settings"]["loggers"] = [{"kind": "csv"}, {"kind": "nope"}]
    message = refusal(data)
    assert message.startswith("my.yaml: 8 problems:\n")
    for path in ("seed", "batch_size", "colour", "loss", "optimizer.eps", "model.activation"):
        assert f"  - '{path}' " in message
    assert "  - 'data.shuffle' " in message
    assert "  - 'settings.loggers.1.kind' " in message


def test_a_kind_nobody_registered_is_told_with_the_nearest_name(data: dict[str, Any]) -> None:
    data["model"]["kind"] = "mpl"
    data["optimizer"]["kind"] = "sgdd"
    data["data"]["kind"] = "wein"
    message = refusal(data)
    assert "'model.kind' is wrong: no model kind is named 'mpl'. Did you mean 'mlp'?" in message
    assert "'data.kind' is wrong: no dataset kind is named 'wein'. Did you mean 'wine'?" in message
    assert "no optimizer kind is named 'sgdd'. Did you mean 'sgd'?" in message


@pytest.mark.parametrize("kind", ["os.system", "{x}", "__init__", "../mlp", "mlp\n", ""])
def test_a_kind_can_never_be_something_to_import(data: dict[str, Any], kind: str) -> None:
    data["model"]["kind"] = kind
    assert f"no model kind is named '{kind}'" in refusal(data)
    data["kind"] = kind
    assert f"no trainer kind is named '{kind}'" in refusal(data)


@pytest.mark.parametrize(("kind", "found"), [(3, "is 3"), (None, "is null"), ([], "is []")])
def test_the_trainer_kind_must_be_a_word(data: dict[str, Any], kind: Any, found: str) -> None:
    data["kind"] = kind
    assert f"'kind' {found}; it names the trainer: active, dqn, fused_dqn, " in refusal(data)


@pytest.mark.parametrize("content", [None, [], "text", 3, {}, {"version": 1}, {1: 2, "version": 1}])
def test_what_is_no_config_at_all_is_refused(content: Any) -> None:
    assert refusal(content).startswith("my.yaml: ")


def test_keys_that_are_not_words_are_told(data: dict[str, Any]) -> None:
    data["model"][1] = 2
    data[None] = 3
    message = refusal(data)
    assert "'model.1' is not a key here: a key is a word" in message
    assert "2 problems" in message


JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("kind"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.just("kind") | st.text(max_size=3) | st.integers(), inner, max_size=3)
    ),
    max_leaves=5,
)
COMPLETE = small_config().model_dump()


@given(st.sampled_from(key_paths(COMPLETE)), JUNK)
@settings(max_examples=200, deadline=None, database=None)
def test_junk_under_any_key_is_read_or_refused_naming_a_key(path: str, junk: Any) -> None:
    data = copy.deepcopy(COMPLETE)
    override(data, path, junk)
    with contextlib.suppress(ConfigError):
        from_data(data, source="x")
        return
    assert re.match(
        r"my.yaml: (\d+ problems:\n  - )?('[a-z0-9_.]+'|no trainer kind|version)", refusal(data)
    )


class Loud(StrictConfig):
    """A logger with something to choose, of which one key only makes sense with another."""

    kind: Literal["loud"]
    """Always loud."""
    volume: int
    """How loud it is."""
    limit: int
    """How loud it may be."""

    def problems(self) -> Iterator[str]:
        if self.volume > self.limit:
            yield f"volume {self.volume} is over the limit {self.limit}"


class LoudLogger:
    Config = Loud


@pytest.fixture
def loud(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(registry._REGISTERED["logger"], "loud", LoudLogger)


@pytest.mark.usefixtures("loud")
def test_each_item_of_a_list_is_read_with_its_own_kind(data: dict[str, Any]) -> None:
    data["settings"]["loggers"] = [{"kind": "csv"}, {"kind": "loud", "volum": 3, "limit": 11}]
    message = refusal(data)
    assert "'settings.loggers.1.volume' is missing; it is: How loud it is." in message
    assert "'settings.loggers.1.volum' is not a key here. Did you mean 'volume'?" in message


@pytest.mark.usefixtures("loud")
def test_a_nested_section_reports_its_own_cross_field_problems(data: dict[str, Any]) -> None:
    data["settings"]["loggers"] = [{"kind": "loud", "volume": 12, "limit": 11}]
    assert refusal(data) == "my.yaml: 'settings.loggers.0': volume 12 is over the limit 11"


@pytest.mark.usefixtures("loud")
def test_a_name_in_two_categories_is_looked_up_in_the_right_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Quiet(StrictConfig):
        kind: Literal["loud"]
        """A model of the same name."""
        depth: int
        """How deep it is."""

    class QuietModel:
        Config = Quiet

    class Both(StrictConfig):
        model: Annotated[StrictConfig, registered("model")]
        """A model."""
        logger: LoggerSection
        """A logger."""

    monkeypatch.setitem(registry._REGISTERED["model"], "loud", QuietModel)
    with pytest.raises(ConfigError) as caught:
        validate(Both, {"model": {"kind": "loud"}, "logger": {"kind": "loud"}}, source="x")
    assert "'model.depth' is missing; it is: How deep it is." in str(caught.value)
    assert "'logger.volume' is missing; it is: How loud it is." in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"data.validation_fraction": 0},
            "'evaluate_every_epochs' is 1, but 'data.validation_fraction'",
        ),
        (
            {
                "learning_rate_schedule": {
                    "kind": "linear",
                    "warmup_steps": 5,
                    "final": 0.0,
                    "total_steps": 5,
                }
            },
            "'learning_rate_schedule': 'warmup_steps' is 5, which leaves nothing of 'total_steps' 5",
        ),
        ({"model.outputs": 1}, "'model.outputs' is 1, but cross_entropy needs one output a class"),
    ],
)
def test_keys_that_contradict_each_other_are_told(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        small_config(**changes)
    assert told in str(caught.value)


# Changing keys


def test_a_key_is_replaced_by_its_path_or_by_a_name_that_is_unique() -> None:
    config = small_config()
    by_path = config.replace(**{"optimizer.learning_rate": 0.5})
    assert by_path.optimizer.learning_rate == 0.5
    assert config.replace(learning_rate=0.5) == by_path
    assert config.replace(optimizer__learning_rate=0.5) == by_path
    assert config.optimizer.learning_rate != 0.5


def test_a_section_is_replaced_by_data_or_by_a_config() -> None:
    model = registry.find("model", "mlp").Config(**MODEL | {"widths": [4]})
    assert small_config().replace(model=model) == small_config(model=MODEL | {"widths": [4]})


def test_a_section_that_was_given_is_left_as_it_was() -> None:
    given_model = {**MODEL, "widths": [4]}
    config = small_config().replace(model=given_model, **{"model.widths": [5]})
    assert config.model.widths == [5]
    assert given_model["widths"] == [4]


def test_a_config_of_another_category_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'model.kind' is wrong: no model kind is named 'wine'"):
        small_config(model=small_config().data)


def test_a_bare_name_at_the_top_wins_over_nested_ones(data: dict[str, Any]) -> None:
    assert override(data, "kind", "other") == "kind"
    assert data["kind"] == "other"
    assert data["model"]["kind"] == "mlp"


def test_a_bare_name_means_a_section_rather_than_one_like_it_inside_another() -> None:
    data = {"first": {"optimizer": {"rate": 1}}, "optimizer": {"rate": 2}}
    assert override(data, "rate", 3) == "optimizer.rate"
    assert data == {"first": {"optimizer": {"rate": 1}}, "optimizer": {"rate": 3}}
    both = {"first": {"optimizer": {"rate": 1}}, "second": {"optimizer": {"rate": 2}}}
    with pytest.raises(ConfigError, match="is in several sections"):
        override(both, "rate", 3)


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("learning_rat", "Did you mean 'optimizer.learning_rate'?"),
        ("settings.devise", "'settings.devise' is not a key of settings. Did you mean 'device'?"),
        ("a.b.c", "'a.b.c' is not a key of this config. Known: accumulate, batch_size"),
        ("settings.xyz", "'settings.xyz' is not a key of settings. Known: checkpoint, deter"),
        ("seed.x", "'seed' is not a section, so 'seed.x' cannot be set"),
        ("max_opt_steps.x", "'max_opt_steps' is null, so 'max_opt_steps.x' cannot be set"),
        ("settings.loggers.0", "'settings.loggers' is not a section"),
        ("settings.", "'settings.' is not a key of settings"),
        ("..", "'..' is not a key of this config"),
    ],
)
def test_a_key_that_cannot_be_set_is_told_with_the_remedy(key: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        small_config().replace(**{key: 1})
    assert told in str(caught.value)


def test_a_replaced_value_is_checked_like_any_other() -> None:
    with pytest.raises(ConfigError, match="'batch_size' must be greater than or equal to 1"):
        small_config().replace(batch_size=0)


@pytest.mark.parametrize(
    ("kind", "key", "path"),
    [
        ("ppo", "seed", "seed"),
        ("ppo", "evaluate_every_epochs", "evaluate_every_epochs"),
        ("ppo", "epochs.evaluate_every_epochs", "evaluate_every_epochs"),
        ("dqn", "num_train_steps", "steps.max_opt_steps"),
        ("supervised", "num_train_steps", "max_opt_steps"),
        ("dqn", "learning_rate", "optimizer.learning_rate"),
        ("ppo", "env.kwargs", "env.kwargs"),
    ],
)
def test_a_config_is_read_by_the_names_it_is_changed_by(kind: str, key: str, path: str) -> None:
    config = value = example(kind)
    for part in path.split("."):
        value = getattr(value, part)
    assert config[key] == value


@pytest.mark.parametrize(
    ("kind", "key", "told"),
    [
        (
            "dqn",
            "evaluate_every_epochs",
            "Here 'steps.evaluate_every_opt_steps' decides that, in optimisation steps, not in",
        ),
        ("dqn", "evaluate_every_opt_step", "Did you mean 'steps.evaluate_every_opt_steps'?"),
        ("dqn", "total_steps", "is in several sections; name one of: "),
    ],
)
def test_a_key_that_a_config_lacks_is_told_when_it_is_read(kind: str, key: str, told: str) -> None:
    with pytest.raises(ConfigError) as refused:
        example(kind)[key]
    assert told in str(refused.value)


def test_key_paths_names_sections_and_leaves() -> None:
    assert key_paths({"a": {"b": 1, "c": {}}, "d": [{"e": 1}]}) == ["a", "a.b", "a.c", "d"]


@pytest.mark.parametrize(
    ("kind", "given", "meant"),
    [
        ("ppo", "total_timesteps", "max_env_steps"),
        ("ppo", "n_epochs", "num_epochs"),
        ("ppo", "clip_range", "clip.initial"),
        ("sac", "polyak", "target.tau"),
        ("sac", "ent_coef", "temperature.initial"),
        ("dqn", "buffer_size", "replay.capacity"),
        ("supervised", "lr", "optimizer.learning_rate"),
        ("supervised", "save_best", "evaluation.keep"),
        ("active", "monitor", "evaluation.metric"),
        ("supervised", "check_val_every_n_epoch", "evaluate_every_epochs"),
    ],
)
def test_a_name_from_elsewhere_is_told_what_it_is_here(
    tmp_path: Path, kind: str, given: str, meant: str
) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(example(kind).to_yaml())
    with pytest.raises(ConfigError, match=rf"'{given}' is not a key .* Did you mean '{meant}'\?"):
        read_config(path, [f"{given}=1"])


@pytest.mark.parametrize(
    ("kind", "given", "told"),
    [
        (
            "ppo",
            "num_minibatches=4",
            "Here 'minibatch_size' decides that: how many steps of a rollout one update learns from, which"
            " has 256; write minibatch_size=64.",
        ),
        ("ppo", "num_minibatches=100", "one update learns from, which has 256."),
        ("fused_ppo", "num_minibatches=64", "how many steps of a rollout one update learns from."),
        ("dqn", "evaluate_every_epochs=5",
            "'steps.evaluate_every_opt_steps' decides that, in optimisation steps, not in epochs."),
        ("dqn-mountaincar", "log_every_opt_steps=5",
            "'epochs.log_every_epochs' decides that, in epochs, not in"),
        ("ppo", "log_every_opt_steps=5", "'log_every_epochs' decides that, in epochs, not in"),
        ("supervised", "evaluate_every_opt_steps=5",
            "'evaluate_every_epochs' decides that, in epochs, not in"),
        ("supervised", "eval_steps=5", "Here 'evaluate_every_epochs' decides that, in epochs."),
        ("sac", "updates_per_env_step=2",
            "Here 'steps.update_every_env_steps' decides that, in env steps for each"),
        ("dqn", "target_update_interval=5", "decides that, in optimisation steps, not in env steps."),
    ],
)  # fmt: skip
def test_a_name_of_another_meaning_is_not_offered_but_explained(
    kind: str, given: str, told: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        change(example(kind).model_dump(), [given], source="my.yaml")
    assert told in str(refused.value)
    assert "Did you mean" not in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "given"),
    [("ppo", "n_iter"), ("ppo", "train_freq"), ("fused_dqn", "total_timesteps"), ("dqn", "n_epochs"),
     ("fused_ppo", "num_train_steps"), ("supervised", "total_timesteps")],
)  # fmt: skip
def test_a_name_of_another_library_is_no_misspelt_one_of_ours(kind: str, given: str) -> None:
    with pytest.raises(ConfigError, match=rf"'{given}' is not a key of this config\. Known: "):
        change(example(kind).model_dump(), [f"{given}=5"], source="my.yaml")


def test_a_number_for_a_section_is_told_where_the_number_is(tmp_path: Path) -> None:
    path = tmp_path / "ppo.yaml"
    # Another key of the same name, that of the normalisation, is not what is meant.
    path.write_text(example("ppo", normalise=NORMALISE).to_yaml())
    with pytest.raises(ConfigError, match=r"'clip' is a section, .* is 'clip\.initial'"):
        read_config(path, ["clip=0.1"])


def test_overrides_are_read_as_yaml(tmp_path: Path) -> None:
    path = small_file(tmp_path / "a.yaml")
    overrides = [
        "learning_rate=1e-3",
        "model.widths=[4, 4]",
        "max_opt_steps=7",
        "evaluation.patience=null",
    ]
    config: Any = read_config(path, [*overrides, "experiment=a=b"])
    assert config.optimizer.learning_rate == 1e-3
    assert config.model.widths == [4, 4]
    assert config.max_opt_steps == 7
    assert config.evaluation.patience is None
    assert config.experiment == "a=b"


@pytest.mark.parametrize("text", ["=", "=3", " =3", "batch_size", ""])
def test_what_is_no_override_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match=r"is not an override; write key.path=value"):
        read_config(small_file(tmp_path / "a.yaml"), [text])


# What decides the result


@pytest.mark.covers("002-M10")
def test_the_digest_ignores_the_name_and_the_settings_only() -> None:
    config = small_config()
    same = config.replace(
        name="other", **{"settings.device": "auto", "settings.checkpoint.keep_last": 9}
    )
    assert same.digest() == config.digest()
    changed = {
        "seed": 1,
        "batch_size": 32,
        "experiment": "b",
        "learning_rate": 0.5,
        "max_opt_steps": 9,
    }
    changed |= {"model.widths": [8, 8], "data.standardise": False, "evaluation.patience": None}
    digests = {config.replace(**{key: value}).digest() for key, value in changed.items()}
    assert len(digests | {config.digest()}) == len(changed) + 1


def test_a_config_survives_being_written_and_read() -> None:
    config = small_config(experiment="on", name="1e5")
    again = from_data(strict_yaml.parse(config.to_yaml(), source="x"), source="x")
    assert again == config
    assert again.to_yaml() == config.to_yaml()


# The shipped files


@pytest.mark.covers("001-M2")
@pytest.mark.parametrize("path", CONFIGS, ids=[path.stem for path in CONFIGS])
def test_every_shipped_config_is_complete_and_valid(path: Path) -> None:
    config = read_config(path)
    # `ppo-pendulum` is one more file for the kind `ppo`, whose example is `ppo`.
    kind = path.stem.partition("-")[0]
    assert config.kind == kind
    assert (ludus.example(kind) == config) == (kind == path.stem)
    # Everything stands in the file, in words: nothing was added on reading.
    written = strict_yaml.parse(path.read_bytes(), source=str(path))
    assert sorted(key_paths(written)) == sorted(key_paths(config.model_dump()))


@pytest.mark.covers("001-M2")
def test_every_built_in_trainer_has_its_file() -> None:
    plain = [path.stem for path in CONFIGS if "-" not in path.stem]
    assert sorted(plain) == sorted(families.listed("trainer"))


def test_an_example_is_changed_by_keywords() -> None:
    assert ludus.example("supervised", learning_rate=0.25).optimizer.learning_rate == 0.25
    with pytest.raises(ConfigError, match="Did you mean 'supervised'"):
        ludus.example("supervise")
    with pytest.raises(ConfigError, match=r"^example\('ppo'\): 2 problems"):
        ludus.example("ppo", max_env_steps=256)
    assert ludus.example("sweep", max_trials=3, name="mine").budget.max_trials == 3
    assert ludus.example("population").population.size == 8


# Agents behind an API learn at the rates of their provider.
LEARNING = [
    path for path in CONFIGS if path.stem != "rerun_tests" and not path.stem.startswith("pure_text")
]


@pytest.mark.parametrize("path", LEARNING, ids=[path.stem for path in LEARNING])
def test_a_learning_rate_is_the_optimizers_in_every_file(path: Path) -> None:
    if path.stem == "fused_dqn":
        with pytest.raises(ConfigError, match="is in several sections; name one of: host"):
            ludus.example(path.stem, learning_rate=1e-3)
        return
    by_keyword = ludus.example(path.stem, learning_rate=1e-3)
    assert by_keyword == ludus.example(path.stem, **{"optimizer.learning_rate": 1e-3})
    assert read_config(path, ["learning_rate=0.001"]) == by_keyword
    assert by_keyword.optimizer.learning_rate == 1e-3


def test_a_section_for_the_learning_rate_is_how_it_changes() -> None:
    steady = {"kind": "constant", "warmup_steps": 3}
    assert (
        ludus.example("dqn", learning_rate_schedule=steady).learning_rate_schedule.warmup_steps == 3
    )


def test_any_shipped_file_is_an_example_by_its_name(call: Ludus) -> None:
    assert ludus.example("dqn-mountaincar", seed=4).replace(seed=0).name == "mountaincar-dqn"
    assert (
        call("new", "dqn-mountaincar").out
        == (CONFIGS[0].parent / "dqn-mountaincar.yaml").read_text()
    )
    for name in ("dqn-mountaincart", "../configs/dqn"):
        with pytest.raises(ConfigError, match=f"no trainer kind or file is named '{name}'"):
            ludus.example(name)


@pytest.mark.covers("000-M3")
def test_a_trainer_takes_a_config_a_dict_or_the_path_of_a_file(tmp_path: Path) -> None:
    path = small_file(tmp_path / "a.yaml")
    config = read_config(path)
    for source in (config, config.model_dump(), str(path), Path(path)):
        for make in (ludus.Trainer, ludus.BaseTrainer, ludus.build_trainer):
            assert make(source).config == config
    dqn = ludus.example("dqn")
    assert isinstance(ludus.build_trainer(dqn.model_dump()), ludus.RLTrainer)
    with pytest.raises(ConfigError, match="Trainer takes a SupervisedConfig, not a DqnConfig"):
        ludus.Trainer(dqn.model_dump())
    incomplete = config.model_dump()
    del incomplete["loss"]
    with pytest.raises(ConfigError, match="the config: 'loss' is missing"):
        ludus.Trainer(incomplete)
    with pytest.raises(ConfigError, match=r"nowhere.yaml: no such file; `ludus new"):
        ludus.Trainer("nowhere.yaml")
    with pytest.raises(
        ConfigError, match=r"build_trainer takes a config, a dict or the path .* not a int"
    ):
        ludus.build_trainer(3)  # type: ignore[arg-type]


def test_a_logger_section_stands_alone_too() -> None:
    assert Logger({"backends": [{"kind": "csv"}]}).config.backends[0].kind == "csv"  # type: ignore[attr-defined]
    with pytest.raises(ConfigError, match=r"'backends.0.kind' is wrong"):
        Logger({"backends": [{"kind": "csvv"}]})


# Versions

VERSION = migrations.VERSION


def add_accumulate(data: dict[str, Any]) -> dict[str, Any]:
    """Pretend that the version of today had no `accumulate`, and made one batch a step."""
    data.setdefault("accumulate", 1)
    data["settings"].setdefault("workers", 0)
    return data


@pytest.fixture
def next_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "VERSION", VERSION + 1)
    monkeypatch.setitem(migrations.MIGRATIONS, VERSION, add_accumulate)


@pytest.fixture
def old_file(tmp_path: Path, data: dict[str, Any]) -> Path:
    """A file of today's version, which lacks two keys that the next one has."""
    del data["accumulate"], data["settings"]["workers"]
    data["version"] = VERSION
    path = tmp_path / "old.yaml"
    path.write_text(strict_yaml.dump(data))
    return path


@pytest.mark.covers("002-S13")
@pytest.mark.usefixtures("next_version")
def test_an_older_file_is_read_through_its_migration(old_file: Path, data: dict[str, Any]) -> None:
    config: Any = read_config(old_file)
    assert (config.version, config.accumulate, config.settings.workers) == (VERSION + 1, 1, 0)
    # The caller's data is the caller's: only a copy was changed.
    before = copy.deepcopy(data)
    from_data(data, source="x")
    assert data == before


@pytest.mark.usefixtures("next_version")
def test_a_key_that_the_migration_added_can_be_overridden(old_file: Path) -> None:
    config: Any = read_config(old_file, ["accumulate=4"])
    assert config.accumulate == 4


@pytest.mark.usefixtures("next_version")
def test_the_command_line_takes_the_migration_up(call: Ludus, old_file: Path) -> None:
    told = call("explain", str(old_file), "accumulate", "workers", "seed")
    assert f"accumulate = 1  (from the migration of {old_file})" in told.out
    assert f"settings.workers = 0  (from the migration of {old_file})" in told.out
    assert f"seed = 0  (from {old_file})" in told.out
    printed = call("migrate", str(old_file))
    assert f"version: {VERSION + 1}\n" in printed.out
    assert "accumulate: 1\n" in printed.out
    assert f"version: {VERSION}\n" in old_file.read_text()
    assert call("migrate", str(old_file), "--write").out == ""
    assert old_file.read_text() == printed.out
    again = call("migrate", str(old_file), "--write")
    assert again.code == 0
    assert f"is at version {VERSION + 1} already" in again.err


def test_an_old_run_is_resumed_through_the_migration(
    call: Ludus, tmp_path: Path, old_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = small_file(tmp_path / "a.yaml", max_epochs=1)
    done = call("train", path, "--root", str(tmp_path), "--json").json
    resolved = tmp_path / "small" / "config.yaml"
    lines = resolved.read_text().splitlines(keepends=True)
    resolved.write_text("".join(line for line in lines if "accumulate" not in line))
    assert "'accumulate' is missing" in call("resume", done["run_dir"]).refusal()
    monkeypatch.setattr(migrations, "VERSION", VERSION + 1)
    monkeypatch.setitem(migrations.MIGRATIONS, VERSION, add_accumulate)
    longer = call("resume", done["run_dir"], "max_epochs=2", "--json").json
    assert longer["counters"]["epoch"] == 2
    assert f"version: {VERSION + 1}\n" in resolved.read_text()


@pytest.mark.usefixtures("next_version")
def test_an_older_file_that_is_not_complete_is_told_so(old_file: Path, call: Ludus) -> None:
    old_file.write_text(f"version: {VERSION}\nkind: supervised\n")
    message = call("plan", str(old_file)).refusal()
    assert f"not a complete file of version {VERSION}" in message
    assert "'settings'" in message


@pytest.mark.parametrize(
    ("version", "told"),
    [
        (VERSION + 1, f"version {VERSION + 1} is newer than this ludus reads ({VERSION}); update"),
        (0, f"'version' is 0, which is not a version; the current one is {VERSION}"),
        ("1", "'version' is '1', which is not a version"),
        (True, "'version' is True, which is not a version"),
        (None, f"'version' is missing; the current one is {VERSION}"),
    ],
)
def test_a_version_this_ludus_cannot_read_is_refused(
    data: dict[str, Any], version: Any, told: str
) -> None:
    data["version"] = version
    assert told in refusal(data)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize(
    ("before", "after"), [(True, "compiled"), (False, "tape"), ("auto", "auto"), ("on", "on")]
)
def test_compile_is_called_engine_now(version: int, before: object, after: str) -> None:
    """Files of both versions have it; what never was right is refused under its new name."""
    new = ludus.example("supervised").model_dump()
    old = as_version_4(new)
    old = {("compile" if key == "engine" else key): value for key, value in old.items()}
    data, _ = migrations.migrate(old | {"version": version, "compile": before}, source="old.yaml")
    assert data == new | {"engine": after}
    assert [*data] == [*new]


@pytest.mark.parametrize("version", [1, 2])
def test_the_schedule_of_a_model_is_called_learning_rate_schedule_now(version: int) -> None:
    new = ludus.example("supervised").model_dump()
    old = as_version_4(new)
    old = {("schedule" if key == "learning_rate_schedule" else key): v for key, v in old.items()}
    data, _ = migrations.migrate(old | {"version": version}, source="old.yaml")
    assert data == new
    assert [*data] == [*new]


@pytest.mark.parametrize(
    ("kind", "written", "meant"),
    [
        ("dqn", "schedule=steps", "'counted_in'"),
        ("sac", "schedule=epochs", "'counted_in'"),
        ("dqn", "schedule.kind=linear", "'exploration.schedule'"),
        ("dqn", "learning_rate.kind=linear", "'learning_rate_schedule.kind'"),
        ("ppo", "learning_rate.points=[]", "'learning_rate_schedule'"),
        ("supervised", "schedule=cosine", "'learning_rate_schedule'"),
        ("supervised", "schedule.warmup_steps=3", "'learning_rate_schedule.warmup_steps'"),
        ("ppo", "compile=true", "'engine'? Write engine=compiled."),
        ("supervised", "compile=false", "'engine'? Write engine=tape."),
        ("supervised", "compile=auto", "'engine'?"),
    ],
)
def test_a_name_of_earlier_files_is_answered_with_that_of_now(
    kind: str, written: str, meant: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(CONFIGS[0].parent / f"{kind}.yaml", [written])
    assert f"is not a key of this config. Did you mean {meant}" in str(caught.value)


def test_the_learning_rate_by_its_bare_name_is_still_a_number() -> None:
    config: Any = read_config(CONFIGS[0].parent / "dqn.yaml", ["learning_rate=0.25"])
    assert config.optimizer.learning_rate == 0.25


def test_sections_of_another_kind_that_share_a_name_are_left_as_they_are() -> None:
    """A kind from a plugin may have an evaluation, a schedule or a clip that means its own."""
    own = {
        "version": 1,
        "kind": "my_kind",
        "evaluation": {"every": 5, "asynchronous": True},
        "schedule": "steps",
        "steps": 10,
        "epochs": {"count": 3},
        "policy_loss": "kl",
        "compile": True,
        "clip": {"at": 0.2},
        "normalise": {"observations": False},
        "optimizer": {"kind": "sgd", "momentum": 0},
        "settings": {"checkpoint": {"every_epochs": 1}},
    }
    data, passed = migrations.migrate(copy.deepcopy(own), source="own.yaml")
    assert passed == [*range(2, VERSION + 1)]
    assert data == own | {"version": VERSION}


def test_a_typed_config_has_the_current_version_only() -> None:
    with pytest.raises(
        ConfigError, match=f"'version' must be {VERSION}, the version of this ludus"
    ):
        small_config(version=VERSION + 1)
    assert issubclass(ludus.Trainer.Config, TrainerConfig)
