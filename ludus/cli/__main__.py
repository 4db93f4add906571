"""`python -m ludus.cli` is the `ludus` command."""

from ludus.cli.start import main

main()
