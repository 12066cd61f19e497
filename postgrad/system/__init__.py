"""What needs no torch: settings, files, user code, signals, sockets, processes."""
