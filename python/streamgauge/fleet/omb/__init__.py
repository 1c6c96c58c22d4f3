"""Load from workers of the OpenMessaging Benchmark (OMB) that run somewhere (docs/omb-fleet.md): the official Java clients as a comparison.

OMB's workers know nothing of schedules, audits or intervals. What they do not tell is marked as missing in the result, and nothing is made up for it.
"""
