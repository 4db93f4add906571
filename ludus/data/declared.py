"""What this room adds to the words of the library."""

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
