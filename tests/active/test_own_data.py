"""A script's own pool goes to the active trainer, and to no other by mistake."""

import pytest
import torch
from torch.utils.data import TensorDataset

import ludus
from ludus.core.errors import ConfigError


def test_the_config_of_an_active_run_is_refused_by_the_supervised_trainer() -> None:
    config = ludus.example("active", data=None, model=None)
    pool = TensorDataset(torch.zeros(4, 2))
    with pytest.raises(
        ConfigError, match=r"of kind active, which Trainer does not do; .* ActiveTrainer"
    ):
        ludus.Trainer(config, train_loader=pool)
    assert ludus.ActiveTrainer(config, train_loader=pool).loaders["train"] is pool


def test_a_trainer_of_ones_own_takes_the_config_of_what_it_derives_from() -> None:
    class Mine(ludus.ActiveTrainer):
        pass

    assert Mine(ludus.example("active")).config.kind == "active"
    with pytest.raises(ConfigError, match="ActiveTrainer takes a ActiveConfig"):
        ludus.ActiveTrainer(ludus.example("supervised"))
