"""The categories that this room declares to the config."""

from ludus.config.families import declare

declare("ludus.envs", categories={"env": "kinds", "wrapper": "wrappers"})
