"""Registrations of the text family: its kinds, and what its optional modules need."""

from __future__ import annotations

from ludus.config.families import declare

_TEXT = "ludus[text]"

declare(
    "ludus.text",
    categories={
        "provider": "providers",
        "text_scenario": "scenarios",
        "text_analyser": "analysers",
    },
    needs={
        "aiohttp": _TEXT,
        "orjson": _TEXT,
        "fastapi": _TEXT,
        "uvicorn": _TEXT,
        "python_multipart": _TEXT,
        "transformers": "ludus[huggingface]",
        "peft": "ludus[huggingface]",
    },
)
