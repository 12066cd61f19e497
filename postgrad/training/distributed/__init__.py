"""Data-parallel runs: virtual ranks that fix the order of sums, and FSDP2 sharding.

Item i belongs to lane i mod L, lane k to rank k mod world. Sums run within a lane in order, then over
lanes, so the bits of a result depend on L and not on the number of ranks. L is saved with the run. A single
process goes through all lanes.
"""
