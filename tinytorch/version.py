"""The version of the package."""

# As programs print it, beside their results. pyproject.toml has the same.
__version__ = "0.1.0"
