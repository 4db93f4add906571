"""Routes of models: listed, looked up, and deleted."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from ludus.text.models.library import LibraryEntry
from ludus.text.server.engine import TextEngine
from ludus.text.server.schemas import Deleted, ModelObject, ModelPage


def model_routes(engine: TextEngine) -> APIRouter:
    """Return the routes under /models."""
    router = APIRouter(tags=["models"])

    @router.get("/models", response_model=ModelPage)
    def list_models() -> dict[str, Any]:
        """List the models of this server."""
        data = [_object(engine, entry) for entry in engine.library.entries()]
        return {
            "object": "list",
            "data": data,
            "has_more": False,
            "first_id": data[0]["id"] if data else None,
            "last_id": data[-1]["id"] if data else None,
        }

    @router.get("/models/{model:path}", response_model=ModelObject)
    def retrieve_model(model: str) -> dict[str, Any]:
        """Return a model."""
        return _object(engine, engine.entry(model))

    @router.delete("/models/{model:path}", response_model=Deleted)
    def delete_model(model: str) -> dict[str, Any]:
        """Delete a model that was tuned here."""
        engine.delete_model(model)
        return {"id": model, "object": "model", "deleted": True}

    return router


def _object(engine: TextEngine, entry: LibraryEntry) -> dict[str, Any]:
    return {
        "id": entry.name,
        "object": "model",
        "created": entry.created_at,
        "owned_by": "ludus",
        "context_length": engine.context_of(entry),
        "parent": entry.origin or None,
    }
