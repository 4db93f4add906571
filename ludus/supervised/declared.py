"""What the supervised family adds to the words of the library."""

from ludus.config.rooms import declare

declare(
    "ludus.supervised",
    lengths={"max_steps": "opt_steps", "max_epochs": "epoch"},
    other_names={
        "num_train_steps": ("max_steps",),
        "n_epochs": ("max_epochs",),
        "epochs": ("max_epochs",),
        "compile": ("engine",),
        "lr": ("optimizer.learning_rate",),
    },
)
