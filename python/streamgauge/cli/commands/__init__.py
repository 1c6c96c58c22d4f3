"""The commands as the shell and `--help` see them: names, options, help. What they do is in the modules beside this package (deferred.py)."""
