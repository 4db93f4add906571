"""Abilities of a run of text: evaluating its models, showing and playing episodes, counting the cost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ludus.arena.protocol import ACCEPT, CONTINUE, REJECT
from ludus.core.errors import ConfigError, nearest
from ludus.text import model_names
from ludus.text.estimate import Estimated, LongestAnswers, lines, num_tests, times, training_tokens
from ludus.text.rollouts.episodes import TextEpisode, to_arrays
from ludus.text.rollouts.play import Answer, TextTable, TurnRequest

if TYPE_CHECKING:
    from ludus.text.trainer import PureTextRlTrainer

_VERDICTS = {REJECT: "rejects", ACCEPT: "accepts", CONTINUE: "goes on"}


class TextAbilities:
    """The abilities of a prepared trainer, which connects to its provider while they are used."""

    def __init__(self, trainer: PureTextRlTrainer) -> None:
        self._trainer = trainer

    def weights_of(self, state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the names of the models in a saved state."""
        return {
            name: model_names.as_tensor(state[f"group_{name}"]["model"])
            for name in self._trainer.groups
        }

    def evaluate_weights(
        self, weights: Mapping[str, Any], *, episodes: int | None = None, seed: int | None = None
    ) -> Mapping[str, float]:
        """Return the statistics of these models on the test questions.

        `episodes` is the number of questions, the first of the test set; None: as in the final test.
        """
        trainer = self._trainer
        with trainer.connected(weights):
            found = trainer.tested("eval", 1, num_questions=episodes, first=seed or 0)
        return {f"eval/{name}": value for name, value in found.items()}

    def narrate(self, weights: Mapping[str, Any], index: int) -> Iterable[str]:
        """Yield one test episode, message by message."""
        return self.play_with(weights, index, (), _nobody)

    def play_with(
        self,
        weights: Mapping[str, Any],
        index: int,
        people: Sequence[str],
        ask: Callable[[str], str],
    ) -> Iterator[str]:
        """Yield one test episode in which a person speaks for some of the agents."""
        trainer = self._trainer
        names = trainer.handler.agent_names
        for person in people:
            if person not in names:
                raise ConfigError(
                    f"--as {person}: there is no agent '{person}' in this protocol.{nearest(person, names)}"
                )
        with trainer.connected(weights):
            speakers = trainer.speakers("play", is_test=True)
            speakers |= {person: Person(person, ask) for person in people}
            (place,) = trainer.questions["test"].take(index, 1)
            (group,) = trainer.episodes("test", [place], 1, index)
            (episode,) = trainer.play([group], speakers, f"play/{index}")
        yield from self._lines(episode, is_hidden=bool(people))

    def _lines(self, episode: TextEpisode, *, is_hidden: bool) -> Iterator[str]:
        """Yield the lines of an episode; a person has seen the question already."""
        trainer = self._trainer
        if not is_hidden:
            yield f"question {episode.index}, label {episode.y}"
            yield from (f"{name}: {text}" for name, text in episode.row.items())
        for number, turns in enumerate(episode.rounds, 1):
            for agent, turn in turns.items():
                decides = trainer.handler.decides(agent, number - 1, episode.seed)
                verdict = f" ({_VERDICTS[turn.decision]})" if decides else ""
                yield f"round {number}: {agent}{verdict}: {turn.text}"
        rewards_A = to_arrays([episode], trainer.handler)["agents", "reward"].sum(1)[0]
        gains = zip(trainer.handler.agent_names, rewards_A, strict=True)
        yield f"label {episode.y}; rewards: {', '.join(f'{a} {gain:+g}' for a, gain in gains)}"

    def estimate(self) -> list[str]:
        """Return what the run would ask of its provider at most, as lines; nothing is asked."""
        trainer = self._trainer
        config, rl = trainer.config, trainer.config.rl
        rows: dict[tuple[str, str, str], Estimated] = {}
        tunings = max(config.max_iterations - 1, 0)
        if config.pretraining is not None:
            found = self._counted("train", config.pretraining.num_episodes, 1)
            self._add_jobs(rows, "pretrain", found, config.pretraining.num_epochs or 1, 1)
        found = self._counted("train", rl.questions_per_iteration, rl.rollouts_per_question)
        for agent, one in found.items():
            rows["sample_rollouts", agent, config.agents[agent].model] = times(
                one, config.max_iterations
            )
        is_growing = config.text_rl.fine_tune_on_all_previous_rollouts
        learned = tunings * (tunings + 1) // 2 if is_growing else tunings
        epochs = config.training_epochs
        self._add_jobs(rows, "create_fine_tune_jobs", found, epochs, tunings, learned)
        whole = config.text_rl.test_on_whole_dataset
        size = trainer.questions["test"].size if whole else rl.questions_per_iteration
        tested = self._counted("test", size, 1)
        for stage, count in (("test", num_tests(config)), ("final_test", rl.num_test_iterations)):
            for agent, one in tested.items() if count else ():
                rows[stage, agent, config.agents[agent].model] = times(one, count)
        return lines(rows, config)

    def _counted(self, split: str, num_questions: int, each: int) -> dict[str, Estimated]:
        """Return what each agent would be asked in one iteration, with answers as long as they may be."""
        trainer = self._trainer
        places = trainer.questions[split].take(0, num_questions)
        speakers = {
            agent: LongestAnswers(section.max_tokens, max_retries=section.max_retries)
            for agent, section in trainer.config.agents.items()
        }
        table = TextTable(trainer.handler, trainer.prompts, speakers)

        async def play() -> None:
            for number, group in enumerate(trainer.episodes(split, places, each, 0)):
                await table.play(group, f"{number}")

        asyncio.run(play())
        return {agent: one.counts for agent, one in speakers.items()}

    def _add_jobs(
        self,
        rows: dict[tuple[str, str, str], Estimated],
        stage: str,
        sampled: Mapping[str, Estimated],
        num_epochs: int,
        count: int,
        learned: int = 1,
    ) -> None:
        """Add so many jobs of each group, which learn from `learned` iterations in all."""
        for name, group in self._trainer.groups.items():
            if not group.is_frozen and count:
                tokens = sum(training_tokens(sampled[one], num_epochs) for one in group.agents)
                rows[stage, name, group.model] = Estimated(
                    jobs=count if self._trainer.makes_jobs else 0, training_tokens=tokens * learned
                )


def _nobody(text: str) -> str:
    raise AssertionError("nobody speaks for an agent here")


@dataclass(frozen=True)
class Person:
    """A speaker that shows a person the conversation and reads the answer."""

    name: str
    ask: Callable[[str], str]
    max_retries: int = 2

    async def answer(self, asked: TurnRequest, count: int) -> Sequence[Answer]:
        """Return the answers that are typed."""
        shown = "\n".join(f"{one.role}: {one.content}" for one in asked.prompt)
        what = "speak or decide" if asked.may_decide else "speak"
        text = f"{shown}\n\nyou are {self.name}: {what}"
        return [Answer(await asyncio.to_thread(self.ask, text)) for _ in range(count)]
