"""What this room adds to the words of the library."""

from ludus.config.rooms import declare

declare("ludus.envs", categories={"env": "kinds", "wrapper": "wrappers"})
