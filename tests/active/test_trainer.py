"""An active trainer asks for labels round by round and learns from them."""

from pathlib import Path

import ludus
from ludus.core.runtime import InMemoryRuntime


def test_every_round_asks_for_labels_and_learns_from_all_there_are(tmp_path: Path) -> None:
    config = ludus.example("active").replace(
        max_rounds=3, max_epochs=2, initial_labels=20, queries=5, **{"settings.display": "none"}
    )
    trainer = ludus.build_trainer(config)
    trainer.fit(runtime=InMemoryRuntime)
    assert trainer.pool.num_labelled == 30
    assert trainer.pool.rounds.tolist() == [0] * 20 + [1] * 5 + [2] * 5
    known = trainer.examples.targets(trainer.pool.labelled)
    assert trainer.pool.labels.tolist() == known.tolist()
    assert trainer.run.counters["labels"] == 30
