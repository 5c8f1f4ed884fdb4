#include "port/shm/port_shm_wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { BACKLOG = 128, LOCK_TRIES = 200, LOCK_WAIT_NS = 1000000 };

static int check_name(const char *name)
{
	size_t len = strnlen(name, SRDMA_NAME_LEN);

	if (!len || len == SRDMA_NAME_LEN || strchr(name, '/'))
		return -EINVAL;
	return 0;
}

int srdma_shm_name_path(char path[108], const char *dir, const char *name)
{
	size_t dlen = strnlen(dir, 108), nlen;

	if (check_name(name))
		return -EINVAL;
	nlen = strlen(name);
	if (dlen + 1 + nlen + sizeof(".sock") > 108)
		return -ENAMETOOLONG;
	memcpy(path, dir, dlen);
	path[dlen] = '/';
	memcpy(path + dlen + 1, name, nlen);
	memcpy(path + dlen + 1 + nlen, ".sock", sizeof(".sock"));
	return 0;
}

static void address_of(struct sockaddr_un *sa, const char path[108])
{
	memset(sa, 0, sizeof(*sa));
	sa->sun_family = AF_UNIX;
	memcpy(sa->sun_path, path, sizeof(sa->sun_path));
}

static int new_socket(void)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC,
			0);

	return fd < 0 ? -errno : fd;
}

int srdma_shm_name_dial(const char *path)
{
	struct sockaddr_un sa;
	int sock = new_socket(), r;

	if (sock < 0)
		return sock;
	address_of(&sa, path);
	if (!connect(sock, (const struct sockaddr *)&sa, sizeof(sa)))
		return sock;
	r = -errno;
	close(sock);
	return r;
}

bool srdma_shm_name_trusted(int sock)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	if (getsockopt(sock, SOL_SOCKET, SO_PEERCRED, &peer, &len))
		return false;
	return peer.uid == geteuid() || peer.uid == 0;
}

/*
 * The directory is locked so that two workers that start at the same time
 * cannot both replace a dead worker's socket. The wait is bounded because any
 * process that may read the directory may lock it.
 */
static int lock_dir(const char *dir)
{
	const struct timespec wait = { .tv_nsec = LOCK_WAIT_NS };
	int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	for (int i = 0; i < LOCK_TRIES; i++) {
		if (!flock(fd, LOCK_EX | LOCK_NB))
			return fd;
		nanosleep(&wait, NULL);
	}
	close(fd);
	return -EBUSY;
}

/* The path exists: unlink it if its listener is dead. */
static int clear_stale(const char *path)
{
	struct stat st;
	int sock;

	if (lstat(path, &st))
		return -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;
	sock = srdma_shm_name_dial(path);
	if (sock >= 0)
		close(sock);
	if (sock == -EMFILE || sock == -ENFILE)
		return sock;
	if (sock != -ECONNREFUSED)
		return -EADDRINUSE;
	return unlink(path) ? -errno : 0;
}

static int bind_path(int sock, const char path[108])
{
	struct sockaddr_un sa;
	int r;

	address_of(&sa, path);
	/* bind() creates the path with this mode, less the umask. */
	if (fchmod(sock, 0600))
		return -errno;
	if (!bind(sock, (const struct sockaddr *)&sa, sizeof(sa)))
		return 0;
	if (errno != EADDRINUSE)
		return -errno;
	r = clear_stale(path);
	if (r)
		return r;
	return bind(sock, (const struct sockaddr *)&sa, sizeof(sa)) ? -errno
								    : 0;
}

static int listen_on(struct srdma_shm_name *n)
{
	struct stat st;
	int r = bind_path(n->sock, n->path);

	if (r)
		return r;
	if (listen(n->sock, BACKLOG) || lstat(n->path, &st)) {
		r = -errno;
		unlink(n->path);
		return r;
	}
	n->dev = st.st_dev;
	n->ino = st.st_ino;
	return 0;
}

int srdma_shm_name_claim(struct srdma_shm_name *n, const char *dir,
			 const char *name)
{
	int r = srdma_shm_name_path(n->path, dir, name), lock;

	if (r)
		return r;
	lock = lock_dir(dir);
	if (lock < 0)
		return lock;
	n->sock = new_socket();
	r = n->sock < 0 ? n->sock : listen_on(n);
	if (r && n->sock >= 0)
		close(n->sock);
	close(lock);
	return r;
}

void srdma_shm_name_release(struct srdma_shm_name *n)
{
	struct stat st;

	/* Another process may have replaced the path. */
	if (!lstat(n->path, &st) && st.st_dev == n->dev && st.st_ino == n->ino)
		unlink(n->path);
	close(n->sock);
}

const char *srdma_port_shm_why(int err)
{
	switch (err) {
	case -EINVAL:
		return "the name must have 1 to 63 bytes and no '/', the slots "
		       "must be a power of two from 16 to 4096";
	case -ENAMETOOLONG:
		return "DIR/NAME.sock must have at most 107 bytes: use a "
		       "shorter directory";
	case -EADDRINUSE:
		return "a worker of this name is running in this directory: "
		       "stop it or choose another name";
	case -EEXIST:
		return "NAME.sock in this directory is not a socket: remove it or "
		       "choose another name";
	case -EBUSY:
		return "another process keeps the directory locked: try again";
	case -ENOENT:
		return "the directory does not exist: make it with mode 0700";
	case -ENOTDIR:
		return "this is not a directory: name an existing one";
	case -EACCES:
		return "this user may not read or write the directory: change its mode";
	case -EMFILE:
	case -ENFILE:
		return "no file descriptors left: raise the limit (ulimit -n)";
	default:
		return strerror(-err);
	}
}
