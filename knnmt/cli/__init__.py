"""The command line: one module per group of commands, and the display of results.

The commands are thin. Options of translation are the fields of `knnmt.translate.settings.TranslateSettings`, which
`flags.with_settings` turns into flags; `options` has those that several commands share. The library raises errors, and
`main` turns an error into one line and exit code 2.
"""
