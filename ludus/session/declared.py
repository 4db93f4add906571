"""Declarations of this package to the library's registry of names."""

from ludus.config.families import declare

declare("ludus.session", categories={"logger": "loggers"})
