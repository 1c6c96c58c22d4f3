"""What people write and what runs leave behind: workload files, system files, results.

Nothing here starts anything or touches the network. Every error about a file carries the file, the line, what was expected and the nearest known key.
"""
