/*
 * Plain sockets on the path of a shared-memory wire, for tests in which another
 * process misbehaves.
 */
#ifndef SHM_RAW_H
#define SHM_RAW_H

#include <sys/un.h>

/* Address of DIR/NAME.sock. */
struct sockaddr_un shm_path(const char *dir, const char *name);

/* A blocking socket that listens on that path, and one connected to it. */
int shm_listen(const char *dir, const char *name);
int shm_dial(const char *dir, const char *name);

#endif
