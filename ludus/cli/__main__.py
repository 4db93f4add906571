"""`python -m ludus.cli` is the `ludus` command."""

from ludus.cli.commands import main

main()
