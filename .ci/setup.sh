#!/usr/bin/env bash
# Installs what fusefs needs and only that.
#   setup.sh system        Debian packages of tools that are not there yet
#   setup.sh build         those of them that building and running fusefs needs
#   setup.sh bench VENV    what the comparisons in bench/ need on top
#   setup.sh python VENV   a virtual environment with fusefs and its development tools
#   setup.sh install VENV PLACE   one with fusefs alone, which is going to be at PLACE
#   setup.sh npm FOLDER    what the package-lock.json there names, for tests alone
set -euo pipefail
cd "$(dirname "$0")/.."

has() { command -v "$1" >/dev/null 2>&1; }

# The first Python on PATH that is new enough.
find_python() {
    local candidate
    for candidate in python3 python3.14 python3.13 python3.12 python3.11; do
        if has "$candidate" &&
            "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    return 1
}

# What building and running fusefs needs.
missing_build_packages() {
    has fusermount3 || echo fuse3
    has pkg-config || echo pkg-config
    { has pkg-config && pkg-config --exists fuse3; } || echo libfuse3-dev
    { has cc && printf '#include <stdio.h>\n' | cc -E - >/dev/null 2>&1; } || echo gcc libc6-dev
    local python
    if python=$(find_python); then
        local version
        version=$("$python" -c 'import sys; print("python%d.%d" % sys.version_info[:2])')
        "$python" -c 'import ensurepip, venv' 2>/dev/null || echo "$version-venv"
        [ -e "$("$python" -c 'import sysconfig; print(sysconfig.get_path("include"))')/Python.h" ] ||
            echo "$version-dev"
    else
        echo python3 python3-venv python3-dev
    fi
}

# What the demo and the tests run in a mount, on top.
missing_packages() {
    missing_build_packages
    has bwrap || echo bubblewrap
    has git || echo git
    has rg || echo ripgrep
    has rsync || echo rsync
    has sqlite3 || echo sqlite3
    has getfattr || echo attr
    has getfacl || echo acl
    has setpriv || echo util-linux
    has node || echo nodejs
    has npm || echo npm
    has make || echo make
    has vim || echo vim
    has fio || echo fio
    has stress-ng || echo stress-ng
    has dbench || echo dbench
    has fs_mark || echo fsmark
    has systemd-analyze || echo systemd
    PATH=$PATH:/sbin:/usr/sbin has mkfs.ext4 || echo e2fsprogs
}

missing_bench_packages() {
    has bindfs || echo bindfs
    has fio || echo fio
    has groff || echo groff-base
}

install_bench() {
    install_packages missing_bench_packages
    "$1/bin/python" -m pip install --quiet --disable-pip-version-check 'tantivy>=0.22,<1'
}

# install_packages COMMAND: what COMMAND names, if anything.
install_packages() {
    local packages sudo=()
    mapfile -t packages < <("$1" | tr ' ' '\n' | sort -u)
    [ "${#packages[@]}" -eq 0 ] && return
    if ! has apt-get; then
        echo "Missing: ${packages[*]} (Debian's names). Install them and run this again." >&2
        exit 1
    fi
    [ "$(id -u)" -eq 0 ] || sudo=(sudo)
    echo "Installing: ${packages[*]}" >&2
    "${sudo[@]}" apt-get update -q
    "${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
        "${packages[@]}"
}

install_python() {
    local venv=$1 python
    python=$(need_python)
    # A virtual environment does not survive a move of its folder or a change of its Python.
    "$venv/bin/python" -c '' 2>/dev/null && "$venv/bin/python" -m pip --version >/dev/null 2>&1 ||
        "$python" -m venv --clear "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
}

need_python() {
    find_python || {
        echo "No python3 >= 3.11 on PATH." >&2
        exit 1
    }
}

install_fusefs() {
    local venv=$1 place=$2 python
    python=$(need_python)
    umask 022
    "$python" -m venv --clear "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-compile .
    "$venv/bin/python" -m pip uninstall --quiet --disable-pip-version-check --yes setuptools pip
    # Scripts begin with the path of their interpreter.
    grep -rlIZ --fixed-strings "$venv" "$venv/bin" "$venv/pyvenv.cfg" |
        xargs -0r sed -i "s|$venv|$place|g"
    "$venv/bin/python" -m compileall -q -f -s "$venv" -p "$place" "$venv/lib"
}

install_npm() {
    npm ci --prefix "$1" --ignore-scripts --no-audit --no-fund --silent
    # Of GitHub's API descriptions (390 MB) the tests read one.
    find "$1/node_modules/@octokit/openapi/generated" -name '*.json' ! -name api.github.com.json \
        -delete
}

case "${1-}" in
system) install_packages missing_packages ;;
build) install_packages missing_build_packages ;;
bench) install_bench "${2:?folder of the virtual environment}" ;;
python) install_python "${2:?folder of the virtual environment}" ;;
install) install_fusefs "${2:?folder to install to}" "${3:?folder it will be in}" ;;
npm) install_npm "${2:?folder of package-lock.json}" ;;
*)
    sed -n '2,8p' "$0" >&2
    exit 2
    ;;
esac
