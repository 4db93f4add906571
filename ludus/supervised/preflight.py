"""Build the model and read the data before training, so that a mismatch is reported first."""

from __future__ import annotations

import torch

from ludus.core.errors import ConfigError
from ludus.data.batches.memory import Batches
from ludus.fit.preflight import check_model
from ludus.nn.model import Model
from ludus.nn.precision import autocast_in, lower_weights
from ludus.seeds import derive, forked
from ludus.supervised.collated import CollatedBatches
from ludus.supervised.config import SupervisedConfig
from ludus.supervised.datasets import Datasets


def make_model(
    config: SupervisedConfig,
    given: Model | None,
    data: Batches,
    device: torch.device,
) -> Model:
    """Return the given model, or the config's: on the device, with trainable parameters."""
    if given is None and config.model is None:
        raise ConfigError("'model' is null and no model was set; call set_model(Model(...))")
    model = given
    if model is None:
        assert config.model is not None
        with forked(derive(config.seed, "model")):
            model = Model(config.model, loss=config.loss)
    if model.loss is None:
        model.loss = config.loss
    if model.loss != config.loss:
        raise ConfigError(
            f"'loss' is {config.loss}, but the model was made for {model.loss}; agree on one"
        )
    model.module.to(device)
    if isinstance(data, CollatedBatches):
        data.check_network(model.module)
    lower_weights(model.module, config.precision)
    model.train()
    with forked(0), autocast_in(config.precision, device):
        check_model(model, data)
    return model


def check_data(datasets: Datasets) -> list[str]:
    """Read each data set twice; return why a resumed run may see other examples."""
    found = [datasets.train.ask_twice()]
    found += [data.ask_twice() for data in datasets.evaluators.values()]
    return [reason for reason in dict.fromkeys(found) if reason is not None]
