"""Admission: the only user of the scripts that grant, renew and settle claims.

`admit.py` asks for claims, `settlement.py` ends them off the client's path, `upkeep.py` keeps the
living ones alive and says that this replica lives.
"""
