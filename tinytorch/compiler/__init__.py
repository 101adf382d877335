"""The compiler: traces a function into a graph, simplifies it, and generates code for it."""
