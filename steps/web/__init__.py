"""The web edition of the steps: `python -m steps.web`, or `make site`."""
