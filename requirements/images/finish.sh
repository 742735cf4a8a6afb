#!/bin/bash
# finish.sh compile PYTHON SKIPPED FOLDER...   compile the Python files below the folders whose paths do not match SKIPPED
# finish.sh lay FOLDER...                      put the folders, with those above them, under /image, all with one date
#
# Run in builder stages, so that the same packages give the same bits whenever they are built. Needs SOURCE_DATE_EPOCH.
set -euo pipefail
export LC_ALL=C PYTHONHASHSEED=0 PYTHONDONTWRITEBYTECODE=1
tree="${TREE:-/image}"

# What Python writes depends on all that the same process compiled before: each process gets the same files in the same order.
# Some packages carry files that do not compile; what Python compiled meanwhile, by the date of its source, is replaced.
compile() {
    local python="$1" skipped="$2"
    shift 2
    find "$@" -name '*.py' -printf '%h\0' | sort --zero-terminated --unique \
        | xargs --null --no-run-if-empty --max-args=32 --max-procs="$(nproc)" \
            "${python}" -m compileall -qq -f -l --invalidation-mode unchecked-hash -x "${skipped}" || true
}

# uv notes when it read each wheel of a folder. The folders above are laid too: where COPY makes them, they get the date of the
# build. Links, for nothing is to be there twice.
lay() {
    find "$@" -path '*.dist-info/uv_cache.json' -delete
    find "$@" -path '*.dist-info/RECORD' -exec sed --in-place '/\.dist-info\/uv_cache\.json,/d' '{}' +
    mkdir --parents "${tree}"
    cd / # where cp looks for the folders above
    cp --archive --link --parents "$@" "${tree}"
    find "${tree}" -exec touch --no-dereference --date="@${SOURCE_DATE_EPOCH}" '{}' +
}

"$@"
