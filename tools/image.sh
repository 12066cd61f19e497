#!/bin/sh
# tools/image.sh SOURCE PREFIX [TORCH_INDEX]: installs the wheel built from SOURCE into a virtual environment PREFIX.
# TORCH_INDEX: an index of torch's builds, PyTorch's of CPU builds say; without it pip's own.
set -eu
source=$1 prefix=$2 index=${3:-}
python3 -m venv "$prefix"
pip="$prefix/bin/python -m pip install -q --disable-pip-version-check --no-cache-dir"
wheels=$(mktemp -d)
"$prefix/bin/python" -m pip wheel -q --disable-pip-version-check --no-deps -w "$wheels" "$source"
[ -z "$index" ] || $pip -c "$source/constraints.txt" --no-deps --index-url "$index" torch
$pip -c "$source/constraints.txt" "$wheels"/*.whl
rm -r "$wheels"
"$prefix/bin/postgrad" --version
