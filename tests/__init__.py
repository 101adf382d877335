"""The tests. A package, so that a test finds its helpers under one name: `tests.strict`."""
