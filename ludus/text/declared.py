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
    lengths={"max_opt_steps": "opt_steps", "max_epochs": "epoch"},
    run_files=(
        "tuned/*",
        "rollouts/*.safetensors",
        "transcripts/*.jsonl",
        "transcripts/*.html",
        "server/**",
    ),
    directions={"nll": "min"},
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
