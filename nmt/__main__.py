"""`python -m nmt` is the `nmt` command."""

from nmt.cli import main

main()
