#!/usr/bin/env bash
# Gradescope runs this once, as root, when it makes the image: a Python of the course's own.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
if [ -d "$here/source" ]; then here=$here/source; fi
cd "$here/course"

find_python() {
    for name in python3 python3.14 python3.13 python3.12 python3.11; do
        if "$name" -c 'import sys, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 15))' \
            2>/dev/null; then echo "$name"; return; fi
    done
}

python=$(find_python)
if [ -z "$python" ]; then
    apt-get update -qq
    apt-get install -y -qq python3.12 python3.12-venv ||
        apt-get install -y -qq python3.11 python3.11-venv || true
    python=$(find_python)
fi
if [ -z "$python" ]; then
    echo "Python 3.11 to 3.14 is needed: choose an image that has one."
    exit 1
fi
"$python" -m tools.install .venv instructor/requirements.txt
# what keeps a submission in: where this container may have no bubblewrap, another user and a filter
apt-get update -qq && apt-get install -y -qq bubblewrap libseccomp2 || true
if [ -z "${MLC_DATA:-}" ]; then .venv/bin/python -m data.fetch || true; fi  # else: the stand-in
mkdir -p build
