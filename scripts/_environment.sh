# Sourced by the other scripts: makes the virtual environment and leaves its python in $PY.
#
#   PYTHON           interpreter to start from (default: python3; 3.11 or newer)
#   GNNFORCE_VENV    folder of the environment (default: below ~/.cache/gnnforce, one for each
#                    checkout, made again when the requirements change). An environment that
#                    these scripts did not make is used as it is and never changed.
#   GNNFORCE_TORCH   what to ask pip for. On Linux the package index answers the default with
#                    the CUDA build (2 GB, runs without a GPU too); for the small CPU build add
#                    the address that pytorch.org's install page shows for "CPU":
#                    GNNFORCE_TORCH="torch==2.13.0 --index-url ADDRESS"
# The versions below are those the checks were last run with; the package itself pins nothing.

GNNFORCE_TORCH="${GNNFORCE_TORCH:-torch==2.13.0}"
CHECKERS="ruff==0.17.6 mypy==2.4.1"
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)"
CACHE="${XDG_CACHE_HOME:-$HOME/.cache}/gnnforce"
STAMP=gnnforce-environment

heading() { printf '\n=== %s\n' "$*"; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }

# A short hash of everything that decides what is installed.
environment_key() {
    "$1" - "$ROOT/pyproject.toml" "$GNNFORCE_TORCH $CHECKERS" <<'PYTHON'
import hashlib, json, pathlib, platform, sys, tomllib
settings = tomllib.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
parts = [settings["build-system"], settings["project"], sys.argv[2]]
parts += [platform.python_version(), platform.machine()]
print(hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12])
PYTHON
}

find_python() {
    local python="${PYTHON:-python3}"
    command -v "$python" >/dev/null || die "no $python; set PYTHON to Python 3.11 or newer"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
        || die "$("$python" --version) is too old; set PYTHON to Python 3.11 or newer"
    "$python" -c 'import ensurepip, venv' 2>/dev/null \
        || die "$python cannot make virtual environments; install its venv package"
    BASE_PYTHON="$python"
}

install_environment() { # folder, key
    heading "Making the environment in $1 (minutes, once)"
    mkdir -p "$(dirname "$1")"
    rm -rf "$1"
    "$BASE_PYTHON" -m venv "$1" || die "could not make $1"
    echo incomplete >"$1/$STAMP"
    local quiet=()
    [ -t 1 ] || quiet=(-q)
    local pip=("$1/bin/python" -m pip --disable-pip-version-check install ${quiet[@]+"${quiet[@]}"})
    # shellcheck disable=SC2086  # several words are meant
    "${pip[@]}" $GNNFORCE_TORCH || die "could not install $GNNFORCE_TORCH"
    # shellcheck disable=SC2086
    "${pip[@]}" -e "$ROOT[dev]" $CHECKERS || die "could not install gnnforce"
    printf '%s\n%s\n' "$2" "$ROOT" >"$1/$STAMP"
}

link_checkout() { # folder, key: another checkout used this environment last
    "$1/bin/python" -m pip --disable-pip-version-check install -q --no-deps \
        --no-build-isolation -e "$ROOT" || die "could not link $ROOT into $1"
    printf '%s\n%s\n' "$2" "$ROOT" >"$1/$STAMP"
}

use_environment() {
    local key here folder
    find_python
    key="$(environment_key "$BASE_PYTHON")"
    here="$(printf '%s' "$ROOT" | cksum | cut -d' ' -f1)"
    folder="${GNNFORCE_VENV:-$CACHE/venv-$key-$here}"
    if [ -d "$folder" ] && [ ! -f "$folder/$STAMP" ]; then
        [ -n "${GNNFORCE_VENV:-}" ] || die "$folder is in the way; remove it"
        [ -x "$folder/bin/python" ] || die "GNNFORCE_VENV=$folder is no virtual environment"
    elif [ "$(sed -n 1p "$folder/$STAMP" 2>/dev/null)" != "$key" ]; then
        rm -rf "$CACHE"/venv-*-"$here" # of this checkout with other requirements
        install_environment "$folder" "$key"
    elif [ "$(sed -n 2p "$folder/$STAMP")" != "$ROOT" ]; then
        link_checkout "$folder" "$key"
    fi
    PY="$folder/bin/python"
    export PATH="$folder/bin:$PATH" VIRTUAL_ENV="$folder"
    unset PYTHONHOME
    local found
    found="$(cd / && "$PY" -c 'import pathlib, gnnforce; print(pathlib.Path(gnnforce.__file__).parents[1])')" \
        || die "gnnforce cannot be imported in $folder"
    [ "$found" = "$ROOT" ] || die "$folder has the gnnforce of $found, not of $ROOT"
}
