"""Routes of files: uploaded, listed, looked up, downloaded and deleted."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, File, Form, Header, Query, Request, UploadFile
from fastapi.responses import FileResponse

from ludus.text.server.engine import TextEngine
from ludus.text.server.files import Purpose
from ludus.text.server.pages import page_of, refuse_unknown
from ludus.text.server.schemas import Deleted, FileObject, FilePage

MOST_FILES = 10_000
IdempotencyKey = Annotated[str | None, Header(min_length=1, max_length=255)]


def file_routes(engine: TextEngine) -> APIRouter:
    """Return the routes under /files."""
    router = APIRouter(tags=["files"])

    @router.post("/files", response_model=FileObject)
    def upload_file(
        file: Annotated[UploadFile, File()],
        purpose: Annotated[Purpose, Form()],
        idempotency_key: IdempotencyKey = None,
    ) -> dict[str, Any]:
        """Upload a file; with an Idempotency-Key, a repeated upload makes it once."""
        added = engine.files.add(
            file.file,
            filename=(file.filename or "upload")[:255],
            purpose=purpose,
            idempotency_key=idempotency_key,
        )
        return added.to_json()

    @router.get("/files", response_model=FilePage)
    def list_files(
        request: Request,
        after: str | None = None,
        limit: Annotated[int, Query(ge=1, le=MOST_FILES)] = MOST_FILES,
        order: Literal["asc", "desc"] = "desc",
        purpose: str | None = None,
    ) -> dict[str, Any]:
        """List the files, the newest first."""
        refuse_unknown(request, "after", "limit", "order", "purpose")
        found = [file for file in engine.files.listed() if purpose in (None, file.purpose)]
        return page_of(
            found if order == "desc" else found[::-1],
            name=lambda file: file.id,
            to_json=lambda file: file.to_json(),
            after=after,
            limit=limit,
        )

    @router.get("/files/{file_id}", response_model=FileObject)
    def retrieve_file(file_id: str) -> dict[str, Any]:
        """Return what is known of a file."""
        return engine.files.get(file_id).to_json()

    @router.get(
        "/files/{file_id}/content",
        response_class=FileResponse,
        responses={200: {"content": {"application/octet-stream": {}}}},
    )
    def download_file(file_id: str) -> FileResponse:
        """Return the bytes of a file."""
        # Never a type that a browser would show: the content is the client's.
        return FileResponse(engine.files.path(file_id), media_type="application/octet-stream")

    @router.delete("/files/{file_id}", response_model=Deleted)
    def delete_file(file_id: str) -> dict[str, Any]:
        """Delete a file."""
        engine.files.delete(file_id)
        return {"id": file_id, "object": "file", "deleted": True}

    return router
