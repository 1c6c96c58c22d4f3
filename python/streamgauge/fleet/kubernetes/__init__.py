"""Workers in a Kubernetes cluster (docs/fleet.md).

`settings` reads what was asked for, `objects` says what is made in the cluster (pure), `api` is the way there,
`pods` watches what becomes of the workers, `placed` is the fleet, `leftovers` removes what a killed lab left.
Only `api` imports the official client, and only when it is used: who needs no cluster needs no such package.
"""
