"""Plain values that every layer may use. No I/O, no clock, no framework."""
