"""Concord: an LLM gateway cluster whose replicas agree.

The way of one request, step by step. `pipeline.py` is this table as code.

| # | step                                              | where                 | Redis         |
|---|---------------------------------------------------|-----------------------|---------------|
| 1 | HTTP in: id, size cap, auth                       | `api`, `auth`         |               |
| 2 | read the few fields we act on, keep the raw body  | `protocols`           |               |
| 3 | name -> model                                     | `resolve`             |               |
| 4 | static candidates, each drop with a reason        | `routing`             |               |
| 5 | admit: circuit, draw, claim                       | `admission`           | `admit`       |
| 6 | send, relay, mark the first token                 | `dispatch`            | `first_token` |
| 7 | classify a failure -> next attempt or give up     | `dispatch.classify`   | `settle`      |
| 8 | settle after the last byte                        | `admission`           | `settle`      |
"""

__version__ = "0.1.0"
