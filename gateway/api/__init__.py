"""HTTP in: plain ASGI endpoints under Starlette's router."""
