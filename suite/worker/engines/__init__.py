"""The engines: one package per training stack, imported only when a manifest names it."""
