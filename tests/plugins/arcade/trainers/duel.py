"""Two players learn, bout after bout, how many sticks to take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import torch
from pydantic import SerializeAsAny

import ludus
from ludus.config import Positive, Settings, find, registered
from ludus.core import Every, Observer, Repeat, Run, Stage
from ludus.seeds import generator
from ludus.session import Trainer, WriteLog

from ..players import PLAYERS, DuelJob, make_players, preferences, step


class ArcadeSettings(ludus.StrictConfig):
    """The fields of a machine in an arcade, besides its game."""

    volume: Positive
    """How loud it is; it changes no result."""


class DuelSettings(Settings):
    """Those of every run, and those of an arcade."""

    arcade: ArcadeSettings
    """The machine."""


class DuelConfig(ludus.TrainerConfig):
    """What decides a duel."""

    settings: DuelSettings
    """Everything that does not decide the result."""
    game: Annotated[SerializeAsAny[ludus.StrictConfig], registered("contest")]
    """What is played."""
    max_bouts: Positive
    """How many bouts there are."""
    eval_every_bouts: Positive
    """Evaluate both players each time this many bouts were played."""


@ludus.register_trainer("duel", example="../duel.yaml")
class Duel(Trainer):
    """Two players with a score each, evaluated beside training; each win of the first has a prize.

    train
      bout x max_bouts
        play
        give_prize
        evaluate         judges the evaluation before and launches another
      settle             judges the last
    """

    Config = DuelConfig
    evaluation_job = DuelJob

    def prepare(self, *, max_steps: int | None) -> None:
        self.game = find("contest", self.config.game.kind)(self.config.game)
        self.players = make_players(self.config.seed)
        self.judge = ludus.Judge(
            *(ludus.Score(name, f"eval/{name}_margin", patience=50) for name in PLAYERS)
        )
        self.async_evaluator = ludus.AsyncEvaluator(
            self.config,
            is_interrupted=lambda: self.run.interrupted,
            on_event=lambda text: self.run.tell(text, event="evaluation_failed"),
        )
        self.write_log = WriteLog(self.logger, [Every(2, "bout")])

    def plan(self) -> Repeat:
        body = (
            Stage(name="play", work=self.play),
            Stage(name="give_prize", work=self.give_prize),
            Stage(name="evaluate", work=self.evaluate, when=self.is_due),
        )
        bout = Repeat(name="bout", times=self.config.max_bouts, counter="bout", body=body)
        settle = Stage(name="settle", work=self.settle, always=True)
        return Repeat(name="train", times=1, body=(bout, settle))

    def parts(self) -> dict[str, Any]:
        own = {"judge": self.judge, "evaluation": self.async_evaluator, "write_log": self.write_log}
        return {**self.players, **own}

    def observers(self) -> Sequence[Observer]:
        return [self.write_log]

    def play(self, run: Run) -> dict[str, Any]:
        """Play one bout; everything random about it follows from the seed and the bout."""
        drawn = generator(self.config.seed, "bout", run.round("bout"))
        moves = {
            name: int(torch.multinomial(preferences(player).softmax(0), 1, generator=drawn))
            for name, player in self.players.items()
        }
        score = self.game.score(*(move + 1 for move in moves.values()))
        for name, sign in zip(PLAYERS, (1, -1), strict=True):
            step(self.players[name], moves[name], sign * score)
        return {"play/score": float(score), "play/first": moves["first"] + 1.0}

    def give_prize(self, run: Run) -> None:
        """Hand out a prize, which nobody gives back: the journal knows of it first."""
        prizes, bout = run.journal("prizes"), str(run.round("bout"))
        if prizes.get(bout) is None:
            prizes.put(bout, {"likes": int(preferences(self.players["first"]).argmax()) + 1})

    def is_due(self, run: Run) -> bool:
        return (run.round("bout") + 1) % self.config.eval_every_bouts == 0

    def evaluate(self, run: Run) -> None:
        self.settle(run)
        if not run.is_ending:
            weights = {name: preferences(player) for name, player in self.players.items()}
            self.async_evaluator.launch(run.counters, weights)

    def settle(self, run: Run) -> None:
        """Wait for the evaluation under way, and judge it by the moment of its launch."""
        if (done := self.async_evaluator.collect()) is None:
            return
        run.log.write_past(run, done.counters, done.metrics)
        self.judge.update(
            run,
            done.metrics,
            lambda score: {score.name: done.weights[score.name]},
            counters=done.counters,
        )

    def weights_of(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return how each player liked its moves in a saved state."""
        for name, player in self.players.items():
            player.load_state_dict(state[name])
        return {name: preferences(player) for name, player in self.players.items()}

    def evaluate_weights(
        self, weights: Mapping[str, Any], *, episodes: int | None = None, seed: int | None = None
    ) -> Mapping[str, float]:
        return DuelJob(self.config).evaluate(weights, is_interrupted=lambda: False)

    def open(self) -> None:
        self.async_evaluator.check()

    def close(self) -> None:
        self.async_evaluator.close()
