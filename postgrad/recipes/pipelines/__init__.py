"""Several runs that build on each other, in one folder: the demo, `align`, `overoptimise`."""
