#!/usr/bin/env bash
# Shows the access rules on two mounted sessions of a throw-away instance: every command is
# printed with its output and its exit status, and held against what was promised.
#
#   docs/demo.sh [FUSEFS]     FUSEFS is the command to use; without it, the one on PATH
set -euo pipefail

fusefs=$(command -v "${1:-fusefs}") || { echo "No command ${1:-fusefs}." >&2; exit 2; }
fusefs=$(realpath "$fusefs")
place=$(mktemp -d "${TMPDIR:-/tmp}/fusefs-demo.XXXXXX")
failures=0

cleanup() {
    local status=$?
    trap - EXIT
    cd /
    for view in narrow wide; do
        if mountpoint -q "$place/$view"; then
            "$fusefs" umount "$place/$view" >/dev/null || fusermount3 -uz "$place/$view" || true
        fi
    done
    rm -rf --one-file-system "$place"
    exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# The sentences of `ls` and `cat` in the language that they are compared in.
export LC_ALL=C.UTF-8
export FUSEFS_INSTANCE=$place/instance
export PATH=$(dirname "$fusefs"):$PATH
cd "$place"

if [ -t 1 ]; then bold=$'\e[1m' dim=$'\e[2m' red=$'\e[31m' plain=$'\e[0m'; else bold= dim= red= plain=; fi

title() { printf '\n%s== %s%s\n' "$bold" "$1" "$plain"; }

# show WHAT_IT_SHOWS STATUS PATTERN COMMAND
# Runs COMMAND; it must end with STATUS (ok, fails) and print a line that matches PATTERN
# (an empty PATTERN: nothing at all).
show() {
    local meaning=$1 wanted=$2 pattern=$3 command=$4 output status=0 verdict=ok
    sleep 0.1 # what one process changes, the others see within 50 ms
    printf '\n  %s# %s%s\n  %s$ %s%s\n' "$dim" "$meaning" "$plain" "$bold" "$command" "$plain"
    output=$(bash -c "$command" 2>&1) || status=$?
    [ -z "$output" ] || sed 's/^/  /' <<<"$output"
    printf '  %s[exit status %d]%s\n' "$dim" "$status" "$plain"
    [ "$status" -eq 0 ] || verdict=fails
    if [ "$verdict" != "$wanted" ]; then
        complain "the command should have ended with: $wanted"
    elif [ -z "$pattern" ] && [ -n "$output" ]; then
        complain "it should have printed nothing"
    elif ! grep -Eq -- "$pattern" <<<"$output"; then
        complain "its output should match: $pattern"
    fi
}

complain() {
    printf '  %sNOT AS PROMISED: %s%s\n' "$red" "$1" "$plain"
    failures=$((failures + 1))
}

title "A tree, and two sessions"
mkdir -p source/Dir1/Dir3/notes source/Dir2
echo 'Read this first.' >source/AGENTS.md
echo 'Not for everyone.' >source/Dir1/FILE1.txt
echo 'Open to both.' >source/Dir1/Dir3/plan.txt
echo 'One' >source/Dir1/Dir3/notes/one.txt
echo 'Secret' >source/Dir2/b.md

show "A new instance, filled from a folder." ok 'Imported 5 files' \
    'fusefs init && fusefs import source /'
show "The whole tree, as its owner sees it." ok 'FILE1.txt' 'fusefs ls / && fusefs ls /Dir1'
show "A session that sees one file and one folder; / and /Dir1 are only passages to them." \
    ok '/Dir1/Dir3=stage' \
    'fusefs session create narrow --grant /AGENTS.md=ro --grant /Dir1/Dir3=stage'
show "A session that reads everything, and may change two folders." ok '/Dir2=stage' \
    'fusefs session create wide --grant /=ro --grant /Dir1/Dir3=stage --grant /Dir2=stage'
show "Both are mounted, each in a process of its own." ok 'Mounted: wide' \
    'mkdir narrow wide && fusefs mount narrow narrow --background && fusefs mount wide wide --background'

title "Passages: the way to what is granted, and nothing else"
show "The granted file is there, by its full path." ok 'Read this first' 'cat narrow/AGENTS.md'
show "So is the granted folder, with everything below it." ok 'plan.txt' 'ls -l narrow/Dir1/Dir3'
show "A passage can be walked through; nobody may read or write it." ok '^d--x--x--x' \
    'stat -c "%A %n" narrow narrow/Dir1'
show "It cannot be listed: a listing would tell of what is hidden." fails 'Permission denied' \
    'ls narrow'
show "Nothing hidden in a passage can be read ..." fails 'Permission denied' \
    'cat narrow/Dir1/FILE1.txt'
show "... or told from what does not exist: the answers are the same." fails \
    "'narrow/Nope.md': Permission denied" 'stat narrow/Dir2/b.md narrow/Nope.md'
show "Nor can anything be made there." fails 'Permission denied' 'echo x > narrow/Dir1/new.txt'
show "Below a folder that is visible, what is missing is just missing." fails \
    'No such file or directory' 'cat narrow/Dir1/Dir3/nope.txt'

title "Read-only, and may change"
show "What is read-only shows no write bits." ok '^-r--r--r--' 'ls -l wide/AGENTS.md'
show "And is not changed." fails 'Read-only file system|Permission denied' \
    'echo more >> wide/AGENTS.md'
show "At stage, writing works as in any folder." ok 'Written by narrow' \
    'echo "Written by narrow" > narrow/Dir1/Dir3/new.txt && cat narrow/Dir1/Dir3/new.txt'

title "One tree: every way in shows the same"
show "The other session's mount shows the change." ok 'Written by narrow' \
    'cat wide/Dir1/Dir3/new.txt'
show "So does the command line, asked as any session." ok 'Written by narrow' \
    'fusefs cat /Dir1/Dir3/new.txt --session wide'
show "And the other way round: what the command line writes ..." ok 'Wrote' \
    'echo "By command" | fusefs write /Dir1/Dir3/new.txt'
show "... both mounts show." ok 'By command' 'cat narrow/Dir1/Dir3/new.txt wide/Dir1/Dir3/new.txt'
show "A refusal reads the same everywhere." fails \
    '^Access denied: /Dir1/FILE1.txt is not open to this session.$' \
    'fusefs cat /Dir1/FILE1.txt --session narrow'

title "Who may do what, and why"
show "Which rule decides about a passage." ok 'passage' 'fusefs explain /Dir1 --session narrow'
show "Which rule decides about a read-only file." ok 'grant on /' \
    'fusefs explain /AGENTS.md --session wide'
show "Grants can be taken back ..." ok '/=none' 'fusefs session grant wide /=none /Dir2=none'
show "... and that holds in the live mount too." fails 'Permission denied' 'cat wide/Dir2/b.md'

title "Nothing is lost by a mistake"
show "What is removed goes to the trash ..." ok 'plan.txt' \
    'rm narrow/Dir1/Dir3/plan.txt && fusefs trash list'
show "... and comes back." ok 'Open to both' \
    'fusefs trash restore /Dir1/Dir3/plan.txt && cat narrow/Dir1/Dir3/plan.txt'
show "Who did what is on record." ok 'narrow' 'fusefs log -n 5'
show "Unmounted, the instance is whole." ok 'No problems' \
    'fusefs umount narrow && fusefs umount wide && fusefs check'

echo
if [ "$failures" -gt 0 ]; then
    echo "${red}$failures of these were not as promised.${plain}"
    exit 1
fi
echo "${bold}All of it is as promised.${plain}"
