// Preloaded into a command: counts what makes, empties, writes, syncs and renames files, in all of its processes, a letter each in
// $FILES_COUNTER, if it is one of $FILES_COUNTED. The $FILES_KILL-th kills them; from the $FILES_FULL-th on the disk is full.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// Returns whether the disk is full.
static int count(char letter) {
  if (!strchr(getenv("FILES_COUNTED"), letter)) return 0;
  const int counter = syscall(SYS_openat, AT_FDCWD, getenv("FILES_COUNTER"), O_WRONLY | O_APPEND);
  syscall(SYS_write, counter, &letter, 1);
  const long at = lseek(counter, 0, SEEK_CUR), full = atol(getenv("FILES_FULL"));
  close(counter);
  if (at == atol(getenv("FILES_KILL"))) kill(0, SIGKILL);
  if (full == 0 || at < full) return 0;
  errno = ENOSPC;
  return 1;
}

// c: a line of cells.csv; w: any other regular file; 0: no file on the disk.
static char letter_of(int file) {
  char link[64], path[4096];
  struct stat status;
  if (fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) return 0;
  snprintf(link, sizeof link, "/proc/self/fd/%d", file);
  const ssize_t size = readlink(link, path, sizeof path - 1);
  if (size < 0 || strncmp(path, "/memfd:", 7) == 0) return 0;
  path[size] = 0;
  return strcmp(strrchr(path, '/'), "/cells.csv") == 0 ? 'c' : 'w';
}

#define OPEN(AT, PATH, FLAGS)                               \
  va_list more;                                             \
  va_start(more, FLAGS);                                    \
  const int mode = FLAGS & O_CREAT ? va_arg(more, int) : 0; \
  if (FLAGS & O_CREAT && count('o')) return -1;             \
  return syscall(SYS_openat, AT, PATH, FLAGS, mode);
int open(const char* path, int flags, ...) { OPEN(AT_FDCWD, path, flags) }
int openat(int at, const char* path, int flags, ...) { OPEN(at, path, flags) }
int open64(const char*, int, ...) __attribute__((alias("open")));
int openat64(int, const char*, int, ...) __attribute__((alias("openat")));
ssize_t write(int file, const void* data, size_t size) {
  const char letter = letter_of(file);
  return letter && count(letter) ? -1 : syscall(SYS_write, file, data, size);
}
int rename(const char* from, const char* to) {
  return count('r') ? -1 : syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0);
}
int fsync(int file) { return count('s') ? -1 : syscall(SYS_fsync, file); }
