"""The phases of a trial by the names that they have everywhere, and the length of an interval."""

from __future__ import annotations

PROVISION = "provision"
SETTLE = "settle"
CREATE_TOPICS = "create topics"
START_CONSUMERS = "start consumers"
SEARCH = "search"
WARM_UP = "warm-up"
MEASURE = "measure"
"""The phase whose messages make the headline figures."""
BUILD = "build backlog"
CATCH_UP = "catch-up"
AFTER = "after"
DRAIN = "drain"
AUDIT = "audit"
COLLECT = "collect"
WIPE = "wipe"

ON_SCHEDULE = (WARM_UP, MEASURE, BUILD, CATCH_UP, AFTER)
EXTRA_READER = "catch-up"
"""The subscription that reads a backlog while others tail."""

INTERVAL_S = 1.0
"""Of what workers count and the lab samples."""
