"""The command line: every command is a thin shell around the library, and prints JSON for scripts with --json."""
