/*
 * The device file of srdma0 (docs/run.md 1). Programs such as UCX use a device only
 * if /dev/infiniband has a character device of its name that they may read and
 * write. srdma0 has none. `srdma run` names this library in LD_PRELOAD: for that path
 * stat() and access() tell about /dev/null, of which `cmd_fd` is a descriptor
 * (docs/run.md 4). Each of them makes the system call that libc makes for it.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEVICE_FILE "/dev/infiniband/uverbs0" /* dev_name of verbs/device.c */

/* path: NULL gives EFAULT, as with libc. The declarations of the callers say that it is
 * not NULL: noipa keeps the compiler from dropping the check for that reason. */
static __attribute__((noipa)) const char *place_of(const char *path)
{
	return path && !strcmp(path, DEVICE_FILE) ? "/dev/null" : path;
}

int stat(const char *restrict path, struct stat *restrict found)
{
	return fstatat(AT_FDCWD, place_of(path), found, 0);
}

/* Programs with 64 bits for offsets of files call this one. */
int stat64(const char *restrict path, struct stat64 *restrict found)
{
	return fstatat64(AT_FDCWD, place_of(path), found, 0);
}

int access(const char *path, int mode)
{
	return faccessat(AT_FDCWD, place_of(path), mode, 0);
}
