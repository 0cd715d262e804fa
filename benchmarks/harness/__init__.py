"""What the benchmarks share: native tools, processes and their costs, peers, tables."""
