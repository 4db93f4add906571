"""PureTextRlTrainer: RL of agents that are language models behind an API. A subclass defines the jobs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

from ludus.arena.protocol import ProtocolHandler
from ludus.core import Repeat, Run, Stateful
from ludus.core.errors import ConfigError, LudusError
from ludus.judge.judge import Judge
from ludus.judge.scores import Score
from ludus.seeds import derive
from ludus.session.begun import begin
from ludus.session.reports import keep
from ludus.session.trainer import Trainer
from ludus.text import model_names
from ludus.text.abilities import TextAbilities
from ludus.text.analyser import AnalysedTextRollouts
from ludus.text.config import TextHyperParameters
from ludus.text.connection import ProviderConnection
from ludus.text.groups import PureTextSharedModelGroup
from ludus.text.nested.array_dict import NestedArrayDict
from ludus.text.plan import make_plan
from ludus.text.rollouts.episodes import TextEpisode, to_arrays
from ludus.text.rollouts.play import Speaker, TextTable
from ludus.text.rollouts.prompts import PromptBook
from ludus.text.rollouts.questions import QuestionOrder
from ludus.text.rollouts.speakers import Demonstrator, ModelSpeaker
from ludus.text.rollouts.statistics import rollout_statistics
from ludus.text.rollouts.store import RolloutStore
from ludus.text.rollouts.transcripts import write_transcripts
from ludus.text.scenario import TextDataset, TextDatasets, TextScenario

T = TypeVar("T")
_SEEDS = 2**32


class PureTextRlTrainer(Trainer):
    """Samples episodes of a protocol from models behind an API, and tunes the models on them.

    train
      pretrain, await_pretraining     on demonstrations (if asked)
      iteration x max_iterations
        sample_rollouts
        log_stats
        test                          (by test_scheme)
        create_fine_tune_jobs         of each group of agents that share a model (not in the last)
        await_fine_tune_jobs          (not in the last)
      final_test
      save_models

    Define `_stage_create_fine_tune_jobs`: it calls a method of each group, such as
    `create_supervised_fine_tune_job`. Override `_sample_rollouts` and `_get_log_stats` to change those
    stages; tests follow the first.
    """

    Config: ClassVar[type[TextHyperParameters]] = TextHyperParameters
    trainer_type: ClassVar[str] = "pure_text"
    derived: ClassVar[tuple[str, ...]] = ("connection", "_runner", "questions")
    config: TextHyperParameters
    makes_jobs: ClassVar[bool] = True
    """Whether its models are tuned by jobs; false: by gradient steps."""
    samples_logprobs: ClassVar[bool] = False
    """Whether rollouts hold the tokens of each answer and their log-probabilities."""

    def _stage_create_fine_tune_jobs(self, rollouts: NestedArrayDict) -> None:
        """Ask each group of agents for a job on these rollouts; the only method to define."""
        raise LudusError(
            f"{type(self).__name__} defines no _stage_create_fine_tune_jobs; define it, and call a method of"
            " each group in self.groups, such as create_supervised_fine_tune_job"
        )

    @property
    def hyper_params(self) -> TextHyperParameters:
        """The parameters of the experiment."""
        return self.config

    def prepare(self, *, max_steps: int | None) -> None:
        """Build scenario, prompts and groups from the config."""
        super().prepare(max_steps=None)
        if max_steps is not None:
            raise ConfigError(
                "a run of text takes its optimisation steps at the provider, so fit(max_steps=...) cannot"
                " count them; set 'max_iterations'"
            )
        self.config, self.notes = begin(self.config, self.run.files, None, _unshortened)
        config = self.config
        self.handler: ProtocolHandler = config.handler()
        self.scenario: TextScenario = config.make_scenario()
        self.datasets: TextDatasets = self.scenario.make_datasets(config.seed).check()
        columns = tuple(self.datasets.train.columns)
        self.prompts: PromptBook = config.make_prompts(self.handler, columns)
        self.questions = {
            name: QuestionOrder(len(getattr(self.datasets, name)), config.seed, f"text/{name}")
            for name in ("train", "test")
        }
        self.groups = {
            name: self._make_group(name, agents) for name, agents in config.groups().items()
        }
        self.rollouts = RolloutStore()
        self.rollouts.open(self.run.files)
        self.connection = ProviderConnection(
            config, self.run, lambda: self.run.files or self.storage
        )
        self.judge = Judge(Score("accuracy", "test/accuracy", "max"))
        self.analysed = AnalysedTextRollouts(config.analysers)
        self._runner: asyncio.Runner | None = None

    def _make_group(self, name: str, agents: Sequence[str]) -> PureTextSharedModelGroup:
        config, first = self.config, self.config.agents[agents[0]]
        return PureTextSharedModelGroup(
            name,
            agents,
            model=first.model,
            is_frozen=first.frozen,
            is_from_scratch=config.text_rl.fine_tune_from_scratch,
            hyperparameters=config.fine_tuning.hyperparameters(),
            seed=config.seed,
            run_name=config.name,
        )

    def open(self) -> None:
        """Connect to the provider, and check that it can do what the run needs."""
        super().open()
        self._connect()

    def _connect(self) -> None:
        self._runner = asyncio.Runner()
        self._do(self.connection.open(self.groups.values()))

    @contextlib.contextmanager
    def connected(self, weights: Mapping[str, Any]) -> Iterator[None]:
        """Connect inside the block, with these models; the trainer is prepared and not opened."""
        for name, model in model_names.as_names(weights).items():
            self.groups[name].model = model
        self._connect()
        self.connection.client.begin(0)
        try:
            yield
        finally:
            self.close()

    def close(self) -> None:
        """Disconnect."""
        runner, self._runner = vars(self).get("_runner"), None
        if runner is None:
            return
        try:
            runner.run(self.connection.close())
        finally:
            runner.close()

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        """Do asynchronous work to its end."""
        if self._runner is None:
            work.close()
            raise LudusError("the provider is connected during fit() alone; use a hook of it")
        return self._runner.run(work)

    def plan(self) -> Repeat:
        """Return the iterations of five stages, and the final test."""
        return make_plan(
            self.config,
            sample_rollouts=self._stage_sample_rollouts,
            log_stats=self._stage_log_stats,
            test=self._stage_test,
            create_fine_tune_jobs=self._stage_create_jobs,
            await_fine_tune_jobs=self._stage_await_fine_tune_jobs,
            pretrain=self._stage_pretrain,
            await_pretraining=self._stage_await_pretraining,
            final_test=self._stage_final_test,
            save_models=lambda run: self._save_models(),
            is_tested=self._is_tested,
        )

    def parts(self) -> Mapping[str, Stateful]:
        """Return all parts that are saved and restored."""
        groups = {f"group_{name}": group for name, group in self.groups.items()}
        return {
            **groups,
            "rollouts": self.rollouts,
            "judge": self.judge,
        }

    def _is_tested(self, run: Run) -> bool:
        iteration = run.counters["iteration"]
        return self.config.text_rl.is_tested(iteration, self.config.max_iterations)

    def _stage_sample_rollouts(self, run: Run) -> None:
        iteration = run.counters["iteration"]
        self.connection.client.begin(iteration)
        rl = self.config.rl
        places = self.questions["train"].take(iteration, rl.questions_per_iteration)
        episodes = self.episodes("train", places, rl.rollouts_per_question, iteration)
        rollouts = self._sample_rollouts(
            episodes, stage="sample_rollouts", key=f"train/{iteration}"
        )
        self.rollouts.put(f"train-{iteration}", rollouts)
        self._count(run, rollouts)

    def _sample_rollouts(
        self, episodes: Sequence[Sequence[TextEpisode]], *, stage: str, key: str
    ) -> NestedArrayDict:
        """Return the played episodes as arrays of (B, T); tests are sampled by it too.

        `episodes` holds those about one question together. `key` names them among all that the run plays.
        """
        is_test = stage != "sample_rollouts"
        played = self.play(episodes, self.speakers(stage, is_test=is_test), key)
        return to_arrays(played, self.handler, with_tokens=self.samples_logprobs and not is_test)

    def play(
        self,
        episodes: Sequence[Sequence[TextEpisode]],
        speakers: Mapping[str, Speaker],
        key: str,
        *,
        forks: int = 1,
    ) -> list[TextEpisode]:
        """Play all episodes to their ends, at once."""
        table = TextTable(self.handler, self.prompts, speakers)

        games = [
            table.play(group, f"{key}/{number}", forks=forks)
            for number, group in enumerate(episodes)
        ]
        played = self._do(self.connection.together(games))
        return [episode for group in played for episode in group]

    def speakers(self, stage: str, *, is_test: bool) -> dict[str, Speaker]:
        """Return the model of each agent, as it is now."""
        config = self.config
        return {
            agent: ModelSpeaker(
                self.connection.client,
                group.model,
                config.agents[agent],
                config.seed,
                stage,
                config.text_rl.test_temperature if is_test else None,
                logprobs=self.samples_logprobs and not is_test,
            )
            for group in self.groups.values()
            for agent in group.agents
        }

    def episodes(
        self, split: str, places: Sequence[int], each: int, iteration: int
    ) -> list[list[TextEpisode]]:
        """Return new episodes, those about one question together."""
        dataset: TextDataset = getattr(self.datasets, split)
        seed = derive(self.config.seed, f"text/{split}/variants", iteration)
        return [
            [
                TextEpisode(
                    index=place,
                    row=dataset.row(place),
                    y=dataset.labels[place],
                    # All variants of the protocol about each question, beginning with any of them.
                    seed=derive(seed, "variant", number) % _SEEDS + i,
                    group=iteration * len(places) + number,
                )
                for i in range(each)
            ]
            for number, place in enumerate(places)
        ]

    def _count(self, run: Run, rollouts: NestedArrayDict) -> None:
        run.counters["env_steps"] += int(rollouts["mask"].sum())
        run.counters["tokens"] += int(rollouts["agents", "tokens"].sum())

    def _stage_log_stats(self, run: Run) -> None:
        iteration = run.counters["iteration"]
        rollouts = self.rollouts.get(f"train-{iteration}")
        found = self._get_log_stats(rollouts)
        run.record({f"train/{name}": value for name, value in found.items()})
        self.connection.log_spent()
        self._write_transcripts("train", iteration, rollouts)
        run.log.write(run)

    def _get_log_stats(self, rollouts: NestedArrayDict) -> dict[str, float]:
        """Return the statistics of rollouts that are logged; call super() and update it."""
        return {
            **rollout_statistics(rollouts, self.handler),
            **self.analysed(rollouts, self.handler),
        }

    def _write_transcripts(self, split: str, iteration: int, rollouts: NestedArrayDict) -> None:
        """Write what was said, as lines and as a page."""
        dataset: TextDataset = getattr(self.datasets, split.partition("-")[0])
        write_transcripts(
            self.run.files, rollouts, dataset, self.handler, split=split, iteration=iteration
        )

    def _stage_test(self, run: Run) -> None:
        """Test the agents, and judge the outcome."""
        iteration = run.counters["iteration"]
        self.connection.client.begin(iteration)
        rollouts = self._test_rollouts(f"test/{iteration}", "test", iteration)
        found = {f"test/{k}": v for k, v in self._get_log_stats(rollouts).items()}
        self._write_transcripts("test", iteration, rollouts)
        self.judge.update(run, found, lambda score: self.weights())
        run.record(found)
        self.connection.log_spent()
        run.log.write(run)

    def _test_rollouts(
        self, key: str, stage: str, iteration: int, num_questions: int | None = None
    ) -> NestedArrayDict:
        """Play an episode about each test question, or about the next ones."""
        order = self.questions["test"]
        if num_questions is None and self.config.text_rl.test_on_whole_dataset:
            places = list(range(order.size))
        else:
            places = order.take(iteration, num_questions or self.config.rl.questions_per_iteration)
        return self._sample_rollouts(
            self.episodes("test", places, 1, iteration), stage=stage, key=key
        )

    def _stage_final_test(self, run: Run) -> None:
        """Test the final agents on held-out questions."""
        self.connection.client.begin(self.config.max_iterations)
        found = self.tested("final_test", self.config.rl.num_test_iterations)
        run.record({f"final_test/{name}": value for name, value in found.items()})
        self.connection.log_spent()
        run.log.write(run)

    def tested(
        self, stage: str, count: int, *, first: int = 0, num_questions: int | None = None
    ) -> dict[str, float]:
        """Return the statistics of so many iterations of test episodes."""
        rollouts = [
            self._test_rollouts(f"{stage}/{number}", stage, number, num_questions)
            for number in range(first, first + count)
        ]
        whole = rollouts[0] if count == 1 else NestedArrayDict.concatenate(rollouts)
        self._write_transcripts(f"test-{stage}", first, whole)
        return self._get_log_stats(whole)

    def _stage_create_jobs(self, run: Run) -> None:
        """Ask for the jobs of all groups, and create each once."""
        iteration = run.counters["iteration"]
        self._ask_for_jobs(iteration)
        self._create_jobs(run, "create_fine_tune_jobs")

    def _ask_for_jobs(self, iteration: int) -> None:
        for group in self.groups.values():
            group.iteration, group.spec = iteration, None
        self._stage_create_fine_tune_jobs(self._learned_from(iteration))

    def _learned_from(self, iteration: int) -> NestedArrayDict:
        if not self.config.text_rl.fine_tune_on_all_previous_rollouts:
            return self.rollouts.get(f"train-{iteration}")
        every = [self.rollouts.get(f"train-{number}") for number in range(iteration + 1)]
        return NestedArrayDict.concatenate(every)

    def _create_jobs(self, run: Run, stage: str) -> None:
        for group in self.groups.values():
            if group.spec is None or group.is_frozen:
                continue
            count, least = group.spec.num_examples, self.connection.min_examples
            if count < least:
                found = f"{count} examples were" if count else "nothing was"
                why = f", and the provider takes {least} or more" if count else ""
                run.tell(
                    f"iteration {group.iteration}: {found} selected for the group '{group.name}'{why}: it"
                    " keeps its model",
                    event="few_examples" if count else "empty_selection",
                )
                continue
            group.note_job(self._do(self.connection.ensure_job(group, stage)))

    def _stage_pretrain(self, run: Run) -> None:
        """Ask for a job of each group on demonstrations of the scenario."""
        section = self.config.pretraining
        assert section is not None
        episodes = self._demonstrated(section.num_episodes)
        for group in self.groups.values():
            group.iteration, group.spec = -1, None
            if not group.is_frozen:
                conversations = [
                    (*turn.prompt, model_names.said(turn.text))
                    for episode in episodes
                    for turns in episode.rounds
                    for agent, turn in turns.items()
                    if agent in group.agents
                ]
                group.create_supervised_fine_tune_job(conversations, **section.hyperparameters())
        self._create_jobs(run, "pretrain")

    def _demonstrated(self, count: int) -> list[TextEpisode]:
        order, seed = self.questions["train"], self.config.seed
        speakers: dict[str, Speaker] = {
            agent: Demonstrator(self.scenario, self.prompts.decision_words(agent), seed)
            for agent in self.handler.agent_names
        }
        episodes = self.episodes("train", order.take(0, count), 1, 0)
        return self.play(episodes, speakers, "demonstrations")

    def _stage_await_fine_tune_jobs(self, run: Run) -> None:
        """Wait until all jobs have ended; then all groups switch to their next models, or none."""
        self._await_jobs(run, self._stage_create_jobs)

    def _stage_await_pretraining(self, run: Run) -> None:
        self._await_jobs(run, self._stage_pretrain)
        for group in self.groups.values():
            group.first_model = group.model

    def _await_jobs(self, run: Run, create: Callable[[Run], None]) -> None:
        waiting = [group for group in self.groups.values() if group.job_id is not None]
        if waiting:
            if self._do(self.connection.has_reported(waiting)):
                create(run)
            self._do(self.connection.wait(waiting))
        for group in self.groups.values():
            group.switch_to_next_model()

    def _save_models(self) -> None:
        """Keep the names of the final models in models/final."""
        keep(self.run, "models/final", self.weights())

    def weights(self) -> dict[str, Any]:
        """Return the name of the model of each group, as bytes in a tensor."""
        return {name: model_names.as_tensor(group.model) for name, group in self.groups.items()}

    def abilities(self) -> Sequence[object]:
        """Return what evaluates, plays and counts; the models of a run are known by their names."""
        return (TextAbilities(self),)

    def data_facts(self) -> Mapping[str, str]:
        """Return the fingerprints of the questions."""
        return {name: model_names.digest(getattr(self.datasets, name)) for name in self.questions}


def _unshortened(
    config: TextHyperParameters, max_steps: int
) -> tuple[TextHyperParameters, list[str]]:
    raise AssertionError("prepare refuses max_steps before")
