"""What this room adds to the words of the library."""

from ludus.config.families import declare

declare("ludus.envs", categories={"env": "kinds", "wrapper": "wrappers"})
