"""What a run leaves behind: a directory that explains itself.

While a trial runs, everything is appended to JSON lines as it comes, so that a lab that is killed loses at
most the line it was writing. When the trial is over, the lines become Parquet; `runner.recover` does the same for a
run whose lab did not live to do it.
"""
