#!/bin/bash
# base.sh DAY FILE: what images stand on, as a tar: Debian 12 with its Python, made of Debian's packages as they were on that
# day (20261101T000000Z; empty: as the archive has them). The same packages give the same tar. Needs mmdebstrap.
set -euo pipefail
export DAY="$1" SOURCE_DATE_EPOCH=1700000000

past=()
if [ -n "${DAY}" ]; then
    past=(
        --setup-hook='cp "$1/etc/apt/sources.list" "$1/etc/apt/sources.usual"'
        --setup-hook='echo "Acquire::Check-Valid-Until \"false\";" > "$1/etc/apt/apt.conf.d/90day"'
        --setup-hook='sed -i -E "s#https?://(deb|security)\.(debian\.[a-z]+)/(debian(-security)?)/?#http://snapshot.\2/archive/\3/${DAY}/#" "$1/etc/apt/sources.list"'
        --customize-hook='mv "$1/etc/apt/sources.usual" "$1/etc/apt/sources.list"; rm "$1/etc/apt/apt.conf.d/90day"'
    )
fi
mmdebstrap --quiet --variant=minbase --include=python3-dev,python3-venv,ca-certificates,libnuma1 "${past[@]}" bookworm "$2"
