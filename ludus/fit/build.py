"""Make the update of a model, and choose the engine that executes it."""

from __future__ import annotations

import dis
import inspect
from typing import Any, NamedTuple

import torch

from ludus.config.registry import find
from ludus.core.errors import ConfigError
from ludus.data.batches.memory import Batches
from ludus.fit.config import FitConfig
from ludus.fit.preflight import first_batch
from ludus.fit.update import ModelUpdate, StepModule
from ludus.nn.engines.choice import Chosen, EngineKey, EngineName, Tell, eager_executor
from ludus.nn.engines.gate import why_not_repeatable
from ludus.nn.engines.network import Plan, choose_call
from ludus.nn.engines.trial import Trial
from ludus.nn.groups import Group
from ludus.nn.learner import Learner
from ludus.nn.memory_format import MemoryFormat, choose_format
from ludus.nn.model import Model
from ludus.nn.optimizer import Sgd
from ludus.nn.recompute import WHY_EAGER, Recomputed
from ludus.nn.schedules import Schedule
from ludus.nn.start import start_groups
from ludus.nn.torch_optimizer import Make, TorchOptimizer

_LARGE = 1 << 22
"""From this many weights on, adding and clearing all gradients costs more than kernel launches."""


class Made(NamedTuple):
    """An update, and how it is executed."""

    update: ModelUpdate
    engine: EngineName
    memory_format: MemoryFormat


def make_update(
    config: FitConfig,
    model: Model,
    data: Batches,
    *,
    schedule: Schedule,
    run_steps: int,
    has_begun: bool,
    tell: Tell,
    given: Make | None = None,
) -> Made:
    """Return the update, executed by an engine, with the choices made; its `engine_notes` say why.

    `tell` is called with what only the first updates show. Raise ConfigError if the engine named in the
    config cannot execute it.
    """
    _check_parameters(model)
    module, segments = model.module, config.gradient_checkpointing
    device = next(module.parameters()).device
    early: list[str] = []
    # Before a run is open there is no directory to write it to.
    on_note: Tell = early.append

    def tell_or_keep(note: str) -> None:
        on_note(note)

    def trial(step: StepModule) -> Trial | None:
        batch = first_batch(data)
        options: dict[str, Any] = {"precision": config.precision, "owners": [model]}
        return None if batch is None else Trial(step, (batch, 0), **options)

    memory_format, notes = choose_format(
        config.memory_format, module, device, lambda format_: trial(StepModule(model, format_))
    )
    step = StepModule(model, memory_format, Recomputed(module, segments) if segments else None)
    learner = _make_learner(config, model, step, highest_rate=schedule.highest, given=given)
    update = ModelUpdate(
        model, learner, accumulate=config.accumulate, first_batch=lambda: first_batch(data)
    )
    update.why_eager = WHY_EAGER if config.gradient_checkpointing else None
    if config.engine in ("auto", "compiled") and why_not_repeatable(model, [module]):
        plan = Plan(step, device, run_steps * config.accumulate, lambda: trial(step))
        engine = _choose_call(config, plan, update, has_begun=has_begun, tell=tell_or_keep)
    else:
        wanted: EngineKey = config.engine
        if isinstance(learner.optimizer, TorchOptimizer):
            wanted, more = "eager", _called(config.engine, learner.optimizer.name, device)
            notes += more
        engine = update.choose(wanted, run_steps, has_begun=has_begun, tell=tell_or_keep)
    update.engine_notes, on_note = [*early, *notes, *update.engine_notes], tell
    return Made(update, engine, memory_format)


def _choose_call(
    config: FitConfig, plan: Plan, update: ModelUpdate, *, has_begun: bool, tell: Tell
) -> EngineName:
    """Compile the network and its loss if that pays, for a network not known to be deterministic."""
    model = update.model
    why_not = "its training_step uses batch_idx" if uses_batch_index(model) else None
    plan = plan._replace(why_not=update.why_eager or why_not)
    call, update.engine_notes = choose_call(config.engine, plan, has_begun=has_begun, tell=tell)
    update.execute_by(Chosen("eager", eager_executor([model.module]), "eager", []))
    update.note_plain_state()
    if call is None:
        quick = "captured as a CUDA graph" if plan.device.type == "cuda" else "taped"
        why = why_not_repeatable(model, [model.module])
        update.engine_notes.append(f"the update is not {quick}: {why}")
        return "eager"
    update.call_network(call)
    return "compiled"


def _keeps_gradients(config: FitConfig, model: Model, given: Make | None) -> bool:
    """Return whether gradients are kept in vectors: engines need that, and small networks are faster.

    It may not depend on whether `engine` is still auto or has become eager: the norm would be summed in
    another order, and a resumed run would not be bit-identical.
    """
    if config.engine in ("tape", "graph") or not why_not_repeatable(model, [model.module]):
        return True
    weights = [weight for weight in model.module.parameters() if weight.requires_grad]
    is_large = sum(weight.numel() for weight in weights) >= _LARGE
    kind = find("optimizer", config.optimizer.kind)
    return not (is_large and given is None and getattr(kind, "is_fused", False))


def _check_parameters(model: Model) -> None:
    for name, parameter in model.module.named_parameters():
        if parameter.requires_grad and parameter.is_complex():
            raise ConfigError(
                f"the parameter {name} is complex, which no optimizer of ludus moves; hold its real and"
                " imaginary parts in one more dimension, and compute with torch.view_as_complex of it"
            )
    if not any(weight.requires_grad for weight in model.module.parameters()):
        raise ConfigError(
            f"the network {type(model.module).__name__} has no parameter that learns; free one with"
            " requires_grad_(), or give a network that has some"
        )


def _called(engine: EngineKey, name: str, device: torch.device) -> list[str]:
    """Return the notices for a torch optimizer; raise ConfigError if an engine should replay it."""
    why = f"the optimizer {name} is one of torch, whose steps no engine replays"
    if engine not in ("auto", "eager"):
        raise ConfigError(f"'engine' is {engine}, but {why}; set engine to auto, or to eager")
    waits = ", and waits for the device at every step" if device.type == "cuda" else ""
    return [f"the update is called eagerly{waits}: {why}"] if engine == "auto" or waits else []


def _make_learner(
    config: FitConfig, model: Model, step: StepModule, *, highest_rate: float, given: Make | None
) -> Learner:
    """Return the learner; raise ConfigError if all is frozen, or torch's SGD does not do as documented."""
    groups = [
        Group(group.prefix, (group.prefix,), rate=group.rate, is_frozen=group.frozen)
        for group in config.parameter_groups
    ]
    learner = Learner(
        model.module,
        config.optimizer,
        max_grad_norm=config.max_grad_norm,
        precision=config.precision,
        ema_decay=config.ema_decay,
        highest_rate=highest_rate,
        called=step,
        groups=start_groups(model.module, config.start, groups),
        given=given,
        keeps_gradients=_keeps_gradients(config, model, given),
    )
    flat, optimizer = learner.flat, learner.optimizer
    if flat.frozen and all(flat.frozen.values()):
        raise ConfigError(
            "'parameter_groups' and 'start.frozen' freeze every parameter of the network, so nothing would"
            " learn; free one"
        )
    # Seen in torch 2.13: its kernel leaves most weights unchanged, and momentum reads unwritten memory.
    halves = [v for v in flat.vectors if v.dtype.itemsize < 4 and v.device.type == "cpu"]
    is_fused = isinstance(optimizer.config, Sgd)
    if isinstance(optimizer, TorchOptimizer) and isinstance(optimizer.made, torch.optim.SGD):
        is_fused = any(group.get("fused") for group in optimizer.made.param_groups)
    if halves and is_fused:
        kind = str(halves[0].dtype).removeprefix("torch.")
        raise ConfigError(
            f"the optimizer is SGD, but torch's fused SGD for {kind} weights computes wrong numbers on a CPU;"
            " use adam or adamw, torch.optim.SGD without fused, a GPU, or weights in float32"
        )
    return learner


def uses_batch_index(model: Model) -> bool:
    """Return whether a model's training_step reads batch_idx."""
    function = inspect.unwrap(type(model).training_step)
    code = getattr(function, "__code__", None)
    if code is None or code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
        # With *args or **kwargs the index is among the arguments.
        return True
    if code.co_argcount < 3:
        return False
    name = code.co_varnames[2]
    return any(
        str(step.argval) == name or (isinstance(step.argval, tuple) and name in step.argval)
        for step in dis.get_instructions(code)
        if step.opname.startswith(("LOAD_FAST", "LOAD_DEREF", "LOAD_CLOSURE"))
    )
