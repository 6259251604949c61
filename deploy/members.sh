#!/bin/sh
# Gives each member of a team a bridge of their own.
#
#   MCPBRIDGE_SERVER=https://bridge.example.com MCPBRIDGE_TOKEN=mcpb_adm_… deploy/members.sh TEAM < names > bridges.tsv
#
# reads a name a line, makes the tenant TEAM if there is none, and prints a line a member:
# name, bridge, MCP URL, client token, provider URL, provider token, with a tab between.
# The tokens are not shown again: keep what it prints as you keep passwords. A member that
# has a bridge of that name already is left alone, so it can be run again.
set -eu
umask 077
team=${1:?"want the tenant's ID"}
mcpbridge=${MCPBRIDGE_PROGRAM:-mcpbridge}

if ! "$mcpbridge" tenant list | awk 'NR > 1 { print $1 }' | grep -qx "$team"; then
    "$mcpbridge" tenant create "$team" >&2
fi
there=$("$mcpbridge" bridge list --tenant "$team" | sed 1d)
while IFS= read -r member; do
    [ -n "$member" ] || continue
    if printf '%s\n' "$there" | awk -F '  +' -v name="$member" '$NF == name { found = 1 } END { exit !found }'; then
        echo "$member has a bridge already" >&2
        continue
    fi
    "$mcpbridge" bridge create --tenant "$team" --name "$member" < /dev/null | awk -F '  +' -v name="$member" '
        { value[$1] = $2 }
        END {
            OFS = "\t"
            print name, value["id"], value["MCP URL"], value["client token"], value["provider URL"], value["provider token"]
        }'
done
