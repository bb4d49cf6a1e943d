"""Wire formats: bytes to values and back. Pure, and unaware of HTTP clients and servers."""
