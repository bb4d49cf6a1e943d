"""From a model to candidates, and from a failed attempt to the next. Pure; state is not asked here.

`candidates.py` applies the filters, `failover.py` holds the rules after a failure, `strategies/`
one file per `router:` name.
"""
