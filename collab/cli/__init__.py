"""The command line: every command is a thin shell around the library; what it prints, a script can have as JSON."""
