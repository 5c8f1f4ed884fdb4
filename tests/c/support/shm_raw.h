/*
 * Raw sockets of the shared-memory wire, as an unrelated process would use
 * them.
 */
#ifndef SHM_RAW_H
#define SHM_RAW_H

#include <sys/un.h>

/* Address of DIR/NAME.sock. */
struct sockaddr_un shm_path(const char *dir, const char *name);

/* Blocking sockets: one that listens on that path, one connected to it. */
int shm_listen(const char *dir, const char *name);
int shm_dial(const char *dir, const char *name);

#endif
