"""The command line: a module for each group of commands, and what people see of their results.

The commands are thin. The library raises, `main` turns an error into one line and exit code 2.
"""
