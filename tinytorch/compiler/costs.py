"""What operations cost: asked before a value is computed a second time rather than kept."""

# What one element of an operation costs, in additions. What is not in the table costs one.
COSTS = {
    **dict.fromkeys("sqrt divide reciprocal".split(), 4),
    **dict.fromkeys("exp log".split(), 8),
    **dict.fromkeys("exp2 expm1 log2 log10 log1p sin cos tan sinh cosh tanh erf erfc".split(), 20),
    **dict.fromkeys("arcsin arccos arctan arcsinh arccosh arctanh arctan2 cbrt".split(), 20),
    **dict.fromkeys("hypot power float_power remainder floor_divide fmod".split(), 20),
    "logaddexp": 40,
}
