"""Write TensorBoard events to a file that a resume truncates, so that no step is shown twice.

The config and the best score are in it as hyperparameters and metric of the HPARAMS tab.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal

import torch

from ludus.config.base import StrictConfig
from ludus.config.registry import register
from ludus.core.errors import LudusError
from ludus.session.record import Record
from ludus.session.remote.logged_run import config_of, logged_end
from ludus.store.storage import Growing, Storage

if TYPE_CHECKING:
    from tensorboard.compat.proto.event_pb2 import Event

_FILE = "events/events.out.tfevents.0.ludus"


@register("logger", "tensorboard")
class TensorBoard:
    """Writes scalars, rates (under `time/`), texts, histograms and images, by env_steps or opt_steps."""

    class Config(StrictConfig):
        """No options."""

        kind: Literal["tensorboard"]
        """Always tensorboard."""

    def __init__(self, config: Config, storage: Storage) -> None:
        # These imports take a second, so only a run that uses TensorBoard pays for them.
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._storage = storage
        self._event: Any = Event
        self._summary: Any = Summary
        self._file = storage.append(_FILE)
        self._records = RecordWriter(_Sink(self._file))
        if self._file.offset == 0:
            self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))
            if storage.exists("config.yaml"):
                self._write_config()

    def _write_config(self) -> None:
        from torch.utils.tensorboard import summary as make

        config = {_unicode(key): value for key, value in config_of(self._storage).items()}
        hparams = {k: _unicode(v) if isinstance(v, str) else v for k, v in config.items()}
        _, start, _ = make.hparams(hparams, {})
        self._write(self._event(wall_time=time.time(), summary=start))

    def write(self, record: Record) -> None:
        """Append one event with the whole record."""
        from torch.utils.tensorboard import summary as make

        scalars = {**record.scalars, **{f"time/{k}": v for k, v in record.timing.items()}}
        values = [
            self._summary.Value(tag=_unicode(name), simple_value=x) for name, x in scalars.items()
        ]
        for name, texts in record.texts.items():
            values += make.text(_unicode(name), _unicode("\n\n".join(texts))).value
        for name, numbers in record.histograms.items():
            finite = numbers[torch.isfinite(numbers)].double()
            if len(finite):
                values += make.histogram(_unicode(name), finite.numpy(), bins=64).value
        for name, image in record.images.items():
            values += make.image(_unicode(name), image, dataformats="CHW").value
        summary = self._summary(value=values)
        self._write(self._event(wall_time=time.time(), step=record.step, summary=summary))

    def _write(self, event: Event) -> None:
        self._records.write(event.SerializeToString())
        self._records.flush()

    def close(self) -> None:
        """Write how the run ended and its best score; a resume that goes on removes both."""
        try:
            self._storage.check_owned()
            if self._storage.exists("config.yaml"):
                self._write_end()
        except LudusError:
            # Another process has the run now, and writes its end.
            return

    def _write_end(self) -> None:
        from torch.utils.tensorboard import summary as make

        end = logged_end(self._storage)
        if end.status not in ("finished", "stopped"):
            return
        now, (_, _, over) = time.time(), make.hparams({}, {})
        self._write(self._event(wall_time=now, summary=over))
        if end.score is not None:
            best = self._summary(
                value=[self._summary.Value(tag="best_score", simple_value=end.score)]
            )
            self._write(self._event(wall_time=now, step=end.step, summary=best))


def _unicode(text: str) -> str:
    """Replace lone surrogates, which TensorBoard refuses."""
    return text.encode("utf-8", errors="replace").decode()


class _Sink:
    """Collects the pieces of one TensorBoard record and appends them in one write."""

    def __init__(self, file: Growing) -> None:
        self._file = file
        self._pieces: list[bytes] = []

    def write(self, data: bytes) -> None:
        self._pieces.append(data)

    def flush(self) -> None:
        self._file.write(b"".join(self._pieces))
        self._pieces = []
