"""The companion of the steps: `python -m steps` lists, runs, compares and checks them."""
