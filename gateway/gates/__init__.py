"""Lines in front of upstream accounts and engines, kept by the whole cluster."""
