"""The command line: one module per group of commands, and the display of results.

The commands are thin. The library raises, `main` turns an error into one line and exit code 2.
"""
