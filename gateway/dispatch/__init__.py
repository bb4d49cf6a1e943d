"""Out to the upstreams: send a request, relay its answer, say what a failure means."""
