"""Strategies: how an attempt's candidates are put to `admit`. One file per `router:` name."""
