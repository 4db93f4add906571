"""Models in memory: loaded at their first request, and released when others need the memory.

LoadedModels    one per root
  LoadedModel   a model and its sampling engine, in use by any number of requests
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from ludus.core.errors import ConfigError, LudusError, is_out_of_memory
from ludus.core.services import drop_message
from ludus.store.files import hash_file
from ludus.text.models.language_model import LanguageModel, load_model
from ludus.text.models.library import ModelLibrary
from ludus.text.sampling.engine import SamplingEngine
from ludus.text.server.errors import ApiError, no_such_model
from ludus.text.server.settings import EngineSettings, Say

_GIGA = 1e9


class LoadedModel:
    """A model that answers requests."""

    def __init__(self, model: LanguageModel, engine: SamplingEngine, fingerprint: str) -> None:
        self.name = model.name
        self.tokenizer = model.tokenizer
        self.context = model.context
        self.engine = engine
        self.fingerprint = fingerprint
        """Hash of its weights, which answers carry."""
        tensors = [*model.module.parameters(), *model.module.buffers()]
        self.num_bytes = sum(tensor.nbytes for tensor in tensors)
        self.num_uses = 0
        """Requests in progress."""
        self.is_deleted = False
        """Whether it is released with its last request."""


class LoadedModels:
    """The models of a library that are in memory; safe to call from several threads."""

    def __init__(
        self, library: ModelLibrary, settings: EngineSettings, *, tell: Say = drop_message
    ) -> None:
        self._library = library
        self._settings = settings
        self._tell = tell
        self._guard = threading.Lock()
        self._loaded: OrderedDict[str, LoadedModel] = OrderedDict()
        """The least recently used first."""
        self._loading: dict[str, Future[None]] = {}
        self._checked: set[str] = set()
        """Hashes of the architectures whose samples do not depend on the load."""
        self._is_closed = False

    def __contains__(self, name: object) -> bool:
        return name in self._loaded

    def names(self) -> list[str]:
        """Return the models in memory, the least recently used first."""
        with self._guard:
            return list(self._loaded)

    def acquire_loaded(self, name: str) -> LoadedModel | None:
        """Return a model if it is in memory, in use until `release`."""
        with self._guard:
            model = self._loaded.get(name)
            if model is not None:
                model.num_uses += 1
                self._loaded.move_to_end(name)
            return model

    def acquire(self, name: str) -> LoadedModel:
        """Return a model, loaded if necessary, in use until `release`; raise ApiError if there is none."""
        while (model := self.acquire_loaded(name)) is None:
            with self._guard:
                loading = self._loading.get(name)
                is_ours = loading is None and name not in self._loaded
                if is_ours:
                    loading = self._loading[name] = Future()
            if loading is None:
                continue
            if is_ours:
                self._load(name, loading)
            loading.result()
        return model

    def release(self, model: LoadedModel) -> None:
        """End one use of a model."""
        with self._guard:
            model.num_uses -= 1
            is_idle = model.num_uses == 0
            unused = self._shrink() if is_idle else []
            if is_idle and model.is_deleted:
                unused.append(model)
        _close(unused)

    def drop(self, name: str) -> None:
        """Release a model that was deleted; requests in progress are answered."""
        with self._guard:
            model = self._loaded.pop(name, None)
            if model is not None:
                model.is_deleted = True
            unused = [model] if model is not None and model.num_uses == 0 else []
        _close(unused)

    def _load(self, name: str, loading: Future[None]) -> None:
        try:
            if name not in self._library:
                raise no_such_model(name)
            directory = self._library.directory(name)
            self._check_size(name, directory)
            model = self._made(name, directory)
            with self._guard:
                if self._is_closed:
                    _close([model])
                    raise ApiError(503, "The server is shutting down.", type="server_error")
                self._loaded[name] = model
                unused = self._shrink(keep=model)
            _close(unused)
        except Exception as error:
            readable = _readable(error, name)
            self._end_loading(name, lambda: loading.set_exception(readable))
        else:
            self._end_loading(name, lambda: loading.set_result(None))

    def _end_loading(self, name: str, settle: Callable[[], None]) -> None:
        with self._guard:
            del self._loading[name]
        settle()

    def _made(self, name: str, directory: Path) -> LoadedModel:
        model = load_model(directory, name=name, device=self._settings.device)
        engine = SamplingEngine(model, max_rows=self._settings.max_rows)
        try:
            self._check_exact(engine, directory)
            files = sorted(directory.glob("*.safetensors"))
            digest = hashlib.sha256("".join(map(hash_file, files)).encode()).hexdigest()
        except BaseException:
            engine.close()
            raise
        return LoadedModel(model, engine, f"fp_{digest[:12]}")

    def _check_exact(self, engine: SamplingEngine, directory: Path) -> None:
        """Check once for each architecture that samples do not depend on what else is sampled."""
        config = directory / "config.json"
        kind = hash_file(config) if config.exists() else str(directory)
        if kind in self._checked:
            return
        try:
            engine.check_batch_invariance()
        except LudusError as error:
            if self._settings.needs_same_text:
                raise
            self._tell(f"{error}; it is served nevertheless, as was asked")
        self._checked.add(kind)

    def _check_size(self, name: str, directory: Path) -> None:
        limit = self._settings.max_memory_gb
        size = sum(path.stat().st_size for path in directory.glob("*.safetensors"))
        if limit is not None and size > limit * _GIGA:
            raise ConfigError(
                f"model '{name}' takes {size / _GIGA:.2f} GB, more than the {limit:g} GB for models;"
                " start the server with a higher --memory-gb"
            )

    def _shrink(self, keep: LoadedModel | None = None) -> list[LoadedModel]:
        """Take out the least recently used idle models while there are too many, and return them."""
        limit = self._settings.max_memory_gb
        taken: list[LoadedModel] = []
        for model in list(self._loaded.values()):
            size = sum(one.num_bytes for one in self._loaded.values())
            is_over = limit is not None and size > limit * _GIGA
            if not is_over and len(self._loaded) <= self._settings.max_loaded_models:
                break
            if model.num_uses == 0 and model is not keep:
                taken.append(self._loaded.pop(model.name))
        return taken

    def close(self) -> None:
        """Release all models; requests in progress end with an error."""
        with self._guard:
            self._is_closed = True
            models = list(self._loaded.values())
            self._loaded.clear()
        _close(models)


def _close(models: list[LoadedModel]) -> None:
    for model in models:
        model.engine.close()


def _readable(error: Exception, name: str) -> Exception:
    """Return the error that a client is answered with, of a model that could not be loaded."""
    if isinstance(error, ApiError):
        return error
    if is_out_of_memory(error):
        text = f"There is not enough memory to load the model `{name}`."
        return ApiError(503, text, "model", "out_of_memory", type="server_error")
    if isinstance(error, LudusError):
        return ApiError(500, str(error), "model", "model_not_loadable", type="server_error")
    return error
