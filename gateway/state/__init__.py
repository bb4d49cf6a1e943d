"""The cluster's state in Redis: keys, scripts, and one method per script.

Nothing above this package spells a key, a script's argument order or a reply's position.
"""
