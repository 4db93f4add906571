"""What this room adds to the words of the library."""

from ludus.config.families import declare

declare("ludus.session", categories={"logger": "loggers"})
