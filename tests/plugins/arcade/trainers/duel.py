"""Learn, bout after bout, how many sticks to take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import SerializeAsAny

import ludus
from ludus.config.base import Positive, Settings
from ludus.config.registry import find
from ludus.config.sections import registered
from ludus.core import Every, Observer, Repeat, Run, Stage
from ludus.seeds import derive
from ludus.session.logger import WriteLog
from ludus.session.trainer import Trainer


class ArcadeSettings(ludus.StrictConfig):
    """What a machine in an arcade is given besides a game."""

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
    game: Annotated[SerializeAsAny[ludus.StrictConfig], registered("game")]
    """What is played."""
    max_bouts: Positive
    """How many bouts there are."""


class Habit:
    """How often each number of sticks has won."""

    def __init__(self) -> None:
        self.wins = [0, 0, 0]

    def state_dict(self) -> dict[str, Any]:
        return {"wins": list(self.wins)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.wins = list(state["wins"])


@ludus.register_trainer("duel", example="../duel.yaml")
class Duel(Trainer):
    """Play against a random opponent and remember what wins."""

    Config = DuelConfig

    def prepare(self, *, max_steps: int | None) -> None:
        self.game = find("game", self.config.game.kind)(self.config.game)
        self.habit = Habit()
        self.log = WriteLog(self.logger, [Every(2, "bout")])

    def plan(self) -> Repeat:
        play = Stage(name="play", work=self.play)
        bout = Repeat(name="bout", times=self.config.max_bouts, counter="bout", body=(play,))
        return Repeat(name="train", times=1, body=(bout,))

    def parts(self) -> dict[str, Any]:
        return {"habit": self.habit, "log": self.log}

    def observers(self) -> Sequence[Observer]:
        return [self.log]

    def play(self, run: Run) -> dict[str, float]:
        """Play one bout; everything random about it follows from the seed and the bout."""
        drawn = derive(self.config.seed, "bout", run.round("bout"))
        mine, theirs = drawn % 3, drawn // 3 % 3
        score = self.game.score(mine + 1, theirs + 1)
        self.habit.wins[mine] += score > 0
        return {"play/score": score, "play/mine": mine + 1}
