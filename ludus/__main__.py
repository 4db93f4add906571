"""`python -m ludus` is the `ludus` command."""

from ludus.cli.commands import main

main()
