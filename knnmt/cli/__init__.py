"""The command line: one module per group of commands, and the display of results.

The commands are thin. The fields of `knnmt.translate.settings.TranslateSettings` are the options of translation;
`flags.with_settings` turns them into flags. `options` has the options that several commands share. The library raises
errors, and `main` turns an error into one line and exit code 2.
"""
