#!/bin/sh
# Checks every pack in a folder and writes what they change on the board into a Markdown file. Text from packs stands
# there set in by four spaces, so that nothing of it is taken for Markdown. A comment of GitHub's has at most 65,536
# characters, and a pack may make the output as long as it likes: what does not fit is left out by whole lines, and the
# comment says how many; the output of this script has all.
# usage: check_submissions.sh FOLDER COMMENT   (OODML: the command, AGAINST: --against FOLDER for each folder of published results)
folder=$1 comment=$2 wrong=0
most=60000  # bytes of the comment, of which an answer takes half of what is left: the last pack has room, too
said=$(mktemp)
trap 'rm -f "$said"' EXIT
: > "$comment"
tell() {
  printf '%s\n\n' "$1" >> "$comment"
  room=$(((most - $(wc -c < "$comment")) / 2))
  tr -d '\r' < "$said" | LC_ALL=C awk -v room="$room" '
    !left && (used += length($0) + 5) <= room { print "    " $0; next }
    { left++ }
    END { if (left) print "    (" left (left > 1 ? " lines are" : " line is") " left out here: the log of the check has all)" }
  ' >> "$comment"
  echo >> "$comment"
  cat "$said"
}
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
