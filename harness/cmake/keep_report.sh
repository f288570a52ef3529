#!/bin/sh
# Runs a CUDA compilation and keeps what the assembler says of registers and spills in OBJECT.ptxas, since it
# says it on the standard error that nobody keeps.
object=
previous=
for argument; do
  [ "$previous" = -o ] && object=$argument
  previous=$argument
done
[ -n "$object" ] || exec "$@"
"$@" 2>"$object.ptxas"
code=$?
grep -vE '^(ptxas info|[0-9]+ bytes stack frame|    [0-9]+ bytes|$)' "$object.ptxas" >&2
exit $code
