"""Drift detection: a stream of digits switches to classes that its model was not trained on."""

import torch
from torch.utils.data import TensorDataset

import ludus
from ludus.active import Features, HardSwitch, Simulator, Trigger, TriggerConfig, Window
from ludus.config import find
from ludus.seeds import generator

FIRST, LAST = [1.0] * 5 + [0.0] * 5, [0.0] * 5 + [1.0] * 5

# Train on the digits 0 to 4 alone, on half of them.
off = {"evaluation.patience": None, "evaluation.keep": 0, "evaluate_every_epochs": 0}
config = ludus.example("supervised", max_epochs=20, **off, **{"settings.display": "none"})
digits = find("dataset", "digits")(config.data).load(generator(0, "split")).train
images, labels = digits.tensors
known = (labels < 5).nonzero()[::2, 0]
trainer = ludus.Trainer(config, train_loader=TensorDataset(images[known], labels[known]))
trainer.fit(name="drift")

# Stream the rest, 40 at a time: five windows of known digits, then two of the others.
rest = torch.tensor(sorted({*range(len(labels))} - {*known.tolist()}))
shift = HardSwitch(HardSwitch.Config(kind="hard_switch", distributions=[FIRST, LAST], period=5))
stream = Simulator(labels[rest], shift, num_classes=10, seed=0)

baseline = {"window": 3, "deviations": 3.0, "min_rise": 0.1}
trigger = Trigger(
    TriggerConfig.model_validate(
        {
            "estimators": [
                {"kind": "ece", "bins": 10, "baseline": baseline},
                {"kind": "mmd", "alpha": 0.02, "permutations": 199},
            ],
            "after_windows": 1,
            "max_consecutive": 1,
        }
    ),
    seed=0,
)
for window in range(7):
    rows = rest[stream.draw(40)]
    with torch.no_grad(), trainer.model.evaluating():
        logits, features = Features(None)(trainer.model, images[rows])
    verdict = trigger.look(Window(logits.log_softmax(1), labels[rows], features.flatten(1)))
    right = float((logits.argmax(1) == labels[rows]).float().mean())
    reasons = "; ".join(verdict.reasons) or "in order"
    print(f"window {window}: {right:4.0%} right, {reasons}")
    assert verdict.is_high == (window >= 5)
