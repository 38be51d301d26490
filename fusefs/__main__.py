"""`python -m fusefs` is the `fusefs` command."""

from fusefs.tools.cli import main

if __name__ == "__main__":
    main()
