"""Session: the runtime of a run in a directory, with its lock, log, display, signals and checkpoints."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Mapping, Sequence
from typing import Any

from ludus.config import registry
from ludus.config.base import TrainerConfig
from ludus.core.errors import ConfigError, RunTaken
from ludus.core.exactness import Exact
from ludus.core.run import Observer, Run, Stateful
from ludus.core.runtime import Request, Result, ending
from ludus.core.states import check_same_parts, fitting, of_format
from ludus.core.trainer import Trainer
from ludus.process.signals import Signals
from ludus.seeds import GlobalRandom
from ludus.session import resumption
from ludus.session.begun import data_of
from ludus.session.changes import note_changes
from ludus.session.device import Compute
from ludus.session.exactness import DIFFERS, RunExactness
from ludus.session.fingerprint import DATA, code_of, fingerprint, host, machine, versions
from ludus.session.given import is_all_of_config, logger_of, origins, own_counters, storage_of
from ludus.session.plugins import code_for_note
from ludus.session.repository import git_state
from ludus.session.saver import Saver
from ludus.session.shown import display_of, plot_of
from ludus.session.witness import Witness
from ludus.show.display import Display
from ludus.show.screen import Screen
from ludus.store import checkpoint, directory, proofs
from ludus.store.bests import best_fields, bests, every_best
from ludus.store.journal import Journal
from ludus.store.note import run_id


class Session:
    """The runtime of one call of `fit`: all that surrounds a run.

    `belongs_to` are entries of run.json of a new run: its group, its sweep.
    """

    shows = True
    """Whether the display of the run is shown."""

    def __init__(
        self, trainer: Trainer, request: Request, *, belongs_to: Mapping[str, str] | None = None
    ) -> None:
        config = trainer.config
        if not isinstance(config, TrainerConfig):
            raise ConfigError(
                f"the config of {type(trainer).__name__} is a {type(config).__name__};"
                " make it a subclass of ludus.TrainerConfig"
            )
        self._trainer = trainer
        self._request, self._belongs_to = request, belongs_to or {}
        self._storage = storage_of(trainer, request)
        directory.refuse_foreign_directory(self._storage, is_resume=bool(self._request.resume))
        self._stack = contextlib.ExitStack()
        self._random = GlobalRandom()
        self._display: Display | None = None
        self._is_taken, self._screen = False, Screen()
        self.show, self.hide = self._screen.show, self._screen.hide
        self._exactness = RunExactness(trainer, is_transplant=request.is_transplant)
        self._logger = logger_of(trainer)
        self._logger.reset()
        self._device = self._stack.enter_context(Compute.of(config)).device
        self._serve(trainer.run)

    def _serve(self, run: Run) -> None:
        """Give the run the services that need no lock on its directory."""
        run.files, run.log, run.record = self._storage, self._logger, self._logger.record
        journal = functools.partial(Journal, self._storage, is_taken=lambda: self._is_taken)
        run.journal = functools.cache(journal)
        run.tell, run.device = self._say, str(self._device)

    def _say(self, text: str, *, event: str | None = None) -> None:
        if event is not None:
            directory.tell_event(self._storage, event, reason=text, **data_of(text))
        if self._display is not None:
            self._display.message(text)

    def open(self, run: Run, parts: Mapping[str, Stateful]) -> Mapping[str, Any] | None:
        """Lock the directory, load the newest valid checkpoint if there is one, and start the log."""
        trainer, storage = self._trainer, self._storage
        storage.check_owned = self._stack.enter_context(storage.lock()).check
        self._stack.callback(setattr, storage, "check_owned", lambda: None)
        self._is_taken = True
        self._stack.callback(setattr, self, "_is_taken", False)
        # Another process may have created the run before this one got the lock.
        directory.refuse_foreign_directory(self._storage, is_resume=bool(self._request.resume))
        storage.sweep()
        self._stack.callback(storage.close)
        self._parts = {**parts, "logger": self._logger, "random": self._random}
        self._is_resumed = storage.exists("run.json")
        self._data = {f"{DATA}{role}": d for role, d in trainer.data_facts().items()}
        self._code = code_of(trainer.config, registry.loaded_plugins)
        facts, by_script = self._fingerprint(), not is_all_of_config(trainer)
        self._exactness.of = proofs.subject_of(trainer.config.digest(), facts, by_script=by_script)
        saved = self._load() if self._is_resumed else None
        seen = saved.manifest if saved else {"offsets": {}, "log_hashes": {}}
        offsets = directory.log_offsets(storage, seen, tell=self.tell)
        self._witness = Witness(storage, self._exactness, tell=self.tell)
        if saved is not None:
            self._witness.gather(offsets, is_same=self._is_same, boundary=saved.number, run=run)
        storage.cut_back(offsets, keep=directory.JOURNALS)
        self._exactness.look_up()
        if self._is_resumed:
            self._note_resume(saved)
        else:
            self._write_first_files(run)
        self._run_id = run_id(storage)
        about, every = self._about, trainer.config.settings.checkpoint
        self._saver = Saver(storage, every, self._parts, about=about, tell=self.tell)
        if saved is not None and self._exactness.noted == saved.manifest["inexact_because"]:
            self._saver.saved_number = saved.number
        run.keep_model, run.recall_model = self._saver.keep_model, self._saver.recall_model
        self._lost_models = () if saved is None else saved.lost_models
        self._saved_state = dict(saved.state) if saved else None
        if saved is not None:
            self._stack.enter_context(of_format(saved.manifest["format"]))
        if self._saved_state is None:
            return None
        with fitting("logger"):
            self._logger.load_state_dict(self._saved_state.pop("logger"))
        self._random_state = self._saved_state.pop("random")
        return self._saved_state

    def ready(self, run: Run) -> None:
        """Make the display, install the signal handlers, and restore the random generators last."""
        if self._lost_models:
            self._trainer.forget_models(self._lost_models)
        self._stack.callback(self._logger.close)
        self._logger.open(self._storage, tell=self.tell)
        kind = self._trainer.config.settings.display if self.shows else "none"
        show_on = self._request.show_on
        display = display_of(self._trainer, kind, self._facts(), show_on=show_on)
        self._display = run.display = display
        self._screen.set(display)
        self._stack.callback(self._screen.hide)
        self._witness.follow(self._logger, self._parts)
        self._logger.attach(self._screen)
        display(run)
        self._stack.enter_context(Signals(run))
        if self._saved_state is not None:
            with fitting("random"):
                self._random.load_state_dict(self._random_state)

    def _load(self) -> checkpoint.Saved | None:
        storage, new = self._storage, self._trainer.config
        saved = resumption.newest(storage, tell=self.tell)
        changes = resumption.changes(storage, saved, new)
        if saved is not None:
            facts, approximate = self._fingerprint(), self._request.resume == "approximate"
            changed = resumption.changed_facts(storage, saved, facts, is_approximate=approximate)
            state = self._trainer.migrated(saved.state)
            state = self._trainer.changed_state(state, changes.values)
            saved.state = resumption.without_stop(state, changes.values)
            unsaved = self._parts.keys() - check_same_parts(self._parts, saved.state)
            directory.check_metrics(storage, saved.manifest)
            more = resumption.reasons_against(saved, changed, changes, sorted(unsaved))
            self._is_same = not more
            earlier = directory.event_reasons(storage, DIFFERS)
            self._exactness.take_up(saved.manifest, [*earlier, *more])
            keep_last = new.settings.checkpoint.keep_last
            resumption.put_back(storage, saved, keep_last=keep_last, tell=self.tell)
        note_changes(storage, changes, saved, tell=self.tell)
        storage.write("config.yaml", new.to_yaml().encode())
        return saved

    def _note_resume(self, saved: checkpoint.Saved | None) -> None:
        number, cursor = (saved.number, saved.state["run"].get("cursor")) if saved else (0, [])
        self.tell("resumed", boundary=number, cursor=cursor, inexact_because=self._exactness.noted)

    def _write_first_files(self, run: Run) -> None:
        about = {
            **origins(self._trainer),
            "versions": versions(),
            "host": host(),
            "machine": machine(self._device),
            "git": self.git(),
            **code_for_note(),
            "start": self._trainer.started_from,
            proofs.KEY: self._exactness.of.key,
            "exact": self._exactness.entry()["exact"],
            **self._belongs_to,
            **own_counters(run),
        }
        directory.write_first_files(self._storage, self._trainer.config, about)
        self.tell("started")
        if self._trainer.started_from is not None:
            self.tell("started_from", **self._trainer.started_from)

    def _about(self) -> dict[str, Any]:
        self._witness.settle()
        kept = self._bests()
        return {
            "run_id": self._run_id,
            "config_hash": self._trainer.config.digest(),
            "config": directory.deciding(self._trainer.config),
            "fingerprint": self._fingerprint(),
            **self._exactness.checkpoint_entry(),
            **kept,
            "models": [best["model"] for best in every_best(kept)],
        }

    def _bests(self) -> dict[str, Any]:
        """Return the entries of a manifest or an event about the models that the trainer keeps."""
        trainer = self._trainer
        copies = bests({"best": trainer.best(), "more_bests": trainer.more_bests()})
        return best_fields(copies, trainer.runners_up())

    def _fingerprint(self) -> dict[str, str]:
        classes = self._trainer.given_classes.items()
        given = {f"{resumption.GIVEN}{role}": name for role, name in classes}
        return {**fingerprint(self._device), **self._code, **given, **self._data}

    def _facts(self) -> dict[str, str]:
        config = self._trainer.config
        return {
            "run": self._storage.place,
            "trainer": config.kind,
            "seed": str(config.seed),
            "resumed": "yes" if self._is_resumed else "no",
            "exact": self._exactness.fact(),
            "device": f"{self._device}, torch threads: {machine(self._device)['threads']}",
        }

    def git(self) -> dict[str, Any] | None:
        return git_state()

    def tell(self, event: str, **details: object) -> None:
        """Write an event to events.jsonl and, if it has a reason, show it on the screen."""
        directory.tell_event(self._storage, event, **details)
        if details.get("reason"):
            self._screen.say(f"{event.replace('_', ' ')}: {details['reason']}")

    def observers(self) -> Sequence[Observer]:
        """Return the trainer's observers, then the display."""
        assert self._display is not None
        return [*self._trainer.observers(), self._display]

    def checkpoint(self, run: Run, /) -> None:
        if run.is_finished:
            self._witness.end()
        self._saver(run)

    def close(self, run: Run, error: BaseException | None) -> None:
        """Record how the run ended and release everything, whatever happened before."""
        with self._stack:
            if isinstance(error, RunTaken) or (error is not None and not hasattr(self, "_saver")):
                return
            self._saver.wait()
            self._storage.check_owned()
            event, reason = self.outcome(run)
            if isinstance(error, KeyboardInterrupt):
                # Not a failure: someone did not want to wait for the next boundary.
                reason = reason or (None if run.is_finished else "stopped at once")
            elif error is not None:
                first = str(error).partition("\n")[0]
                event, reason = "failed", f"{type(error).__name__}: {first}"
            directory.tell_event(self._storage, event, reason=reason, **self._ending(run))
            if run.interrupted and not run.is_finished:
                # Messages that the display still holds back come before this one.
                self._screen.hide()
                self._screen.say(self.way_to_resume())

    def outcome(self, run: Run) -> tuple[str, str | None]:
        return str(ending(run).status), ending(run).reason

    def _ending(self, run: Run) -> dict[str, Any]:
        return {
            "counters": {name: value for name, value in run.counters.items() if value},
            **self._bests(),
            **self._exactness.entry(),
        }

    def way_to_resume(self) -> str:
        """Return the sentence that says how to resume."""
        if is_all_of_config(self._trainer):
            return f"to go on: {directory.way_to_resume(self._storage.place)}"
        return "to go on: run the same script with fit(resume=True)"

    def result(self, run: Run) -> Result:
        """Return the outcome of the run, with the locations of its files."""
        entry = self._exactness.entry()
        return ending(
            run,
            best=self._trainer.best(),
            more_bests=self._trainer.more_bests(),
            runners_up=self._trainer.runners_up(),
            run_dir=self._storage.place,
            exact=Exact(entry["exact"]),
            inexact_because=tuple(entry["inexact_because"]),
            draw=plot_of,
        )
