"""Fireworks: chat completions as OpenAI's, fine-tuning jobs in a form of its own.

Written from its API reference and the types of its Python package (November 2026) and not run against it: the
paths (datasets, supervisedFineTuningJobs, dpoJobs), fields and states were read there. A job's id may be
chosen, so it is derived from the key: a second creation is refused, and a job is found without a list.
"""

from __future__ import annotations

import datetime
import hashlib
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field

from ludus.config.registry import register
from ludus.text.client.failures import plain, unreadable
from ludus.text.client.http import HttpClient
from ludus.text.client.secret import KeyConfig
from ludus.text.jobs import Job, JobSpec, Method, Status
from ludus.text.provider import ModelInfo, ProviderError
from ludus.text.providers._openai_api import OpenaiApi, ServerConfig

_COLLECTIONS: Mapping[Method, str] = {"supervised": "supervisedFineTuningJobs", "dpo": "dpoJobs"}
_STATES: Mapping[str, Status] = {
    "JOB_STATE_RUNNING": "running",
    "JOB_STATE_WRITING_RESULTS": "running",
    "JOB_STATE_PAUSED": "paused",
    "JOB_STATE_COMPLETED": "succeeded",
    "JOB_STATE_EARLY_STOPPED": "succeeded",
    "JOB_STATE_FAILED": "failed",
    "JOB_STATE_EXPIRED": "failed",
    "JOB_STATE_CANCELLED": "cancelled",
}
# Ids are at most 63 characters, and begin with a letter.
_KEY_DIGITS = 48


class FireworksConfig(ServerConfig):
    """Fireworks."""

    key: KeyConfig
    """Where the API key is read."""
    jobs_url: str
    """The base URL of everything but sampling, up to and with /v1."""
    account: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
    """The id of the account, in which data sets, jobs and tuned models are made."""


@register("provider", "fireworks")
class Fireworks(OpenaiApi):
    """Samples through `url`, tunes through `jobs_url`."""

    Config: ClassVar[type[FireworksConfig]] = FireworksConfig
    min_examples = 3
    label = "Fireworks"

    async def open(self) -> None:
        """Read the key, and prepare to connect."""
        await super().open()
        config = self.config
        assert isinstance(config, FireworksConfig)
        jobs_url = f"{config.jobs_url.rstrip('/')}/accounts/{config.account}"
        self._jobs = HttpClient(jobs_url, config.key.read(), name=self.label)
        self._account = config.account
        await self._jobs.open()

    async def close(self) -> None:
        """Close all connections."""
        await super().close()
        if "_jobs" in vars(self):
            await self._jobs.close()

    async def models(self) -> Sequence[ModelInfo]:
        """Return the models that can be sampled without a deployment."""
        return await super().models()

    async def create_job(self, spec: JobSpec) -> Job:
        """Make the data set unless it is there, and create a job whose id follows from its key."""
        dataset = await self._dataset(spec)
        training: dict[str, Any] = {"baseModel": spec.model, "outputModel": _id_of(spec.key, "m")}
        names = {
            "n_epochs": "epochs",
            "learning_rate": "learningRate",
            "batch_size": "batchSizeSamples",
        }
        left = dict(spec.hyperparameters)
        training |= {names[name]: left.pop(name) for name in list(left) if name in names}
        body: dict[str, Any] = {"dataset": dataset, "displayName": spec.suffix[:63]}
        if spec.method == "dpo":
            body["trainingConfig"] = training
            if "beta" in left:
                body["lossConfig"] = {"method": "DPO", "klBeta": left.pop("beta")}
        else:
            body |= training
        if left:
            raise ProviderError(
                f"Fireworks has no hyperparameters named {' and '.join(sorted(left))}; it takes"
                f" {', '.join(names)}, and beta for dpo"
            )
        collection = _COLLECTIONS[spec.method]
        chosen = {f"{collection[:-1]}Id": _id_of(spec.key, "j")}
        return self._read(await self._jobs.post(f"/{collection}", body, chosen), spec.key)

    async def _dataset(self, spec: JobSpec) -> str:
        """Return the name of the data set with these lines, uploading them if there is none."""
        name = _id_of(hashlib.sha256(spec.lines).hexdigest(), "d")
        path = f"/datasets/{name}"
        try:
            found = await self._known(path)
            if found is None:
                about = {"exampleCount": str(spec.num_examples), "userUploaded": {}}
                await self._jobs.post("/datasets", {"datasetId": name, "dataset": about})
            if found is None or found.get("state") != "READY":
                await self._jobs.upload(
                    f"{path}:upload", {}, file_name=f"{name}.jsonl", content=spec.lines
                )
        except ProviderError as error:
            # No job was asked for yet.
            error.is_known = True
            raise
        return f"accounts/{self._account}/datasets/{name}"

    async def _known(self, path: str) -> dict[str, Any] | None:
        try:
            found = await self._jobs.get(path)
        except ProviderError as error:
            if error.status == 404:
                return None
            raise
        return found if isinstance(found, dict) else {}

    async def find_jobs(self, key: str) -> list[Job]:
        """Return the job with this key, if it is there."""
        names = [f"/{collection}/{_id_of(key, 'j')}" for collection in _COLLECTIONS.values()]
        found = [await self._known(name) for name in names]
        return [self._read(row, key) for row in found if row is not None]

    async def job(self, job_id: str) -> Job:
        """Return how a job stands."""
        return self._read(await self._jobs.get(f"/{urllib.parse.quote(job_id)}"), None)

    async def cancel_job(self, job_id: str) -> Job:
        """Cancel a job."""
        await self._jobs.post(f"/{urllib.parse.quote(job_id)}:cancel", {})
        return await self.job(job_id)

    def _read(self, found: object, key: str | None) -> Job:
        row = found if isinstance(found, dict) else {}
        name = row.get("name")
        if not isinstance(name, str):
            raise unreadable("a job without a name", name=self.label)
        # The id is the collection and the name in it, as both are needed to ask for it.
        job_id = "/".join(name.split("/")[-2:])
        training = found if isinstance(found := row.get("trainingConfig"), dict) else row
        state, status = str(row.get("state")), row.get("status")
        message = status.get("message") if isinstance(status, dict) else None
        ended = _STATES.get(state, "pending")
        return Job(
            id=job_id,
            status=ended,
            model=str(training.get("baseModel") or training.get("warmStartFrom") or ""),
            key=key,
            fine_tuned_model=str(training.get("outputModel") or "") or None,
            error=plain(str(message)) if message and ended == "failed" else None,
            created_at=_seconds(row.get("createTime")),
            more={"status": plain(state)},
        )


def _id_of(key: str, letter: str) -> str:
    return f"ludus-{letter}-{key[:_KEY_DIGITS]}"


def _seconds(text: object) -> int:
    try:
        return int(datetime.datetime.fromisoformat(str(text)).timestamp())
    except ValueError:
        return 0
