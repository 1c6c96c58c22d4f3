"""The command line: `commands/` declares the commands, the modules beside it do what they are for and show what came of it.

Commands read what was asked, hand it to the parts that do the work, and show what came of it. Nothing heavy is imported before a command runs
(deferred.py): `streamgauge --help` answers at once.

Exit statuses are in vocabulary/exit_status.py.
"""
