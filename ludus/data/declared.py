"""The categories and extras that this room declares to the config."""

from ludus.config.families import declare

declare(
    "ludus.data",
    categories={"dataset": "sources"},
    needs={
        "PIL": "ludus[images]",
        "pyarrow": "ludus[tables]",
        "datasets": "ludus[huggingface]",
    },
)
