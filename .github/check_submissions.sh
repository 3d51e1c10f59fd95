#!/bin/sh
# Checks every pack in a folder and writes what they change on the board into a Markdown file. Text from packs stands
# there set in by four spaces, so that nothing of it is taken for Markdown.
# usage: check_submissions.sh FOLDER COMMENT   (OODML: the command, AGAINST: --against FOLDER for each folder of published results)
folder=$1 comment=$2 wrong=0
said=$(mktemp)
trap 'rm -f "$said"' EXIT
: > "$comment"
tell() { printf '%s\n\n' "$1" >> "$comment"; tr -d '\r' < "$said" | cut -c1-400 | head -n 60 | sed 's/^/    /' >> "$comment"; echo >> "$comment"; cat "$said"; }
for pack in "$folder"/*/; do
  [ -d "$pack" ] || continue
  if "$OODML" submit --check "$pack" > "$said" 2>&1; then
    tell "Every score follows from the outcomes:"
    "$OODML" diff $AGAINST "$pack" > "$said" 2>&1 || wrong=1
    tell "On the board:"
  else
    wrong=1
    tell "Refused:"
  fi
done
[ -s "$comment" ] || echo "There is no pack below reports/data/submissions/." >> "$comment"
exit $wrong
