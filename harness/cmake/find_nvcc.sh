#!/bin/sh
# Prints the CUDA compiler to build with: $CUDACXX, else the first new enough of PATH's nvcc and /usr/local/cuda's. CMake, ./kvlab
# and gpu-check ask it and so choose alike. If none will do, it prints a line that says what to do, and exits with 1.
# An argument, "12.8", is the newest CUDA that the driver runs.
least=12.4
driver=${1:-}
if [ -n "${CUDACXX:-}" ]; then
  set -- "$CUDACXX"
  reason="CUDACXX is '$CUDACXX', which is not a program; set it to the nvcc of a CUDA toolkit"
else
  set -- nvcc /usr/local/cuda/bin/nvcc
  reason="no CUDA compiler here; install the CUDA toolkit ($least or newer), or set CUDACXX to its nvcc"
fi

# Prints the reason why a compiler will not do, or nothing.
wrong() { # NVCC
  version=$("$1" --version 2>/dev/null | sed -n 's/.*release \([0-9]*\.[0-9]*\).*/\1/p')
  if [ -z "$version" ]; then
    echo "$1 does not say its version; set CUDACXX to the nvcc of a CUDA toolkit"
  elif [ "$(printf '%s\n' "$least" "$version" | sort -V | head -n 1)" != "$least" ]; then
    echo "$1 is of CUDA $version, and $least is needed; set CUDACXX to a newer nvcc"
  elif [ -n "$driver" ] && [ "${version%.*}" -gt "${driver%.*}" ]; then
    echo "$1 is of CUDA $version, and the driver runs no newer than $driver; update it, or set CUDACXX to an older nvcc"
  else
    limit=$("$1" ${CUDAHOSTCXX:+-ccbin "$CUDAHOSTCXX"} -E -x cu /dev/null 2>&1 >/dev/null |
      sed -n 's/.*error -- unsupported [A-Za-z]* version! \([^!]*\)!.*/\1/p' | head -n 1)
    [ -z "$limit" ] || echo "${CUDAHOSTCXX:-g++} is too new for $1 ($limit); set CUDAHOSTCXX to an older compiler"
  fi
}

first=
for name; do
  nvcc=$(command -v -- "$name") || continue
  reason=$(wrong "$nvcc")
  [ -n "$reason" ] || { echo "$nvcc" && exit; }
  first=${first:-$reason}
done
echo "${first:-$reason}"
exit 1
