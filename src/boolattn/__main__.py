"""``python -m boolattn``: the command line."""

from boolattn.cli import main

if __name__ == "__main__":
    main()
