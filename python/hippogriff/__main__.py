"""`python -m hippogriff` is the command."""

from hippogriff.cli import main

if __name__ == "__main__":
    main()
