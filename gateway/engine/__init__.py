"""A simulated OpenAI-shaped engine: predictable answers, latencies, slots and faults on demand.

It stands in for a real upstream in the demo, the tests and the benchmarks. It knows no model and
checks no credential; what it received last can be read back, so a test sees what reached it.
"""
