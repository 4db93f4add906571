"""`python -m ludus` is the `ludus` command."""

from ludus.cli.start import main

main()
