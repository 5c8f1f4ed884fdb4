#include "listener.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "log.h"
#include "peer.h"

enum {
	BACKLOG = 512,
	WAIT_NS = 10000000, /* between attempts */
	LOCK_TRIES = 200,
	KNOCK_TRIES = 100,
};

static int refuse(int err, const char *path, const char *text)
{
	log_error("control socket %s: %s", path, text);
	return err;
}

static void wait_a_little(void)
{
	const struct timespec wait = { .tv_nsec = WAIT_NS };

	nanosleep(&wait, NULL);
}

/*
 * The wait is bounded because any process that may read the directory may lock
 * it. Returns 0 or -errno.
 */
static int lock(int fd)
{
	for (int i = 0; i < LOCK_TRIES; i++) {
		if (flock(fd, LOCK_EX | LOCK_NB) == 0)
			return 0;
		if (errno != EWOULDBLOCK)
			return -errno;
		wait_a_little();
	}
	return -EBUSY;
}

/*
 * Open and lock the directory of path, so that two workers that start at the
 * same time cannot both replace the same stale socket.
 */
static int folder_lock(const char *path)
{
	char copy[PATH_MAX];
	const char *folder;
	int fd, rc;

	snprintf(copy, sizeof(copy), "%s", path);
	folder = dirname(copy);
	if (mkdir(folder, 0700) < 0 && errno != EEXIST)
		return refuse(-errno, path, strerror(errno));
	fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return refuse(-errno, path, strerror(errno));
	rc = lock(fd);
	if (rc < 0) {
		close(fd);
		return refuse(
			rc, path,
			rc == -EBUSY
				? "another process keeps its directory locked"
				: strerror(-rc));
	}
	return fd;
}

/*
 * fd is connected to a listening socket. Returns 0 if the process that created
 * that socket is alive; -EAGAIN if it has ended; -EMFILE or -ENFILE. If the
 * process cannot be determined, it is assumed to be alive.
 */
static int ask_for_its_maker(int fd)
{
	int pidfd = peer_pidfd(fd), ended;

	if (pidfd < 0 && (errno == EMFILE || errno == ENFILE))
		return -errno;
	if (pidfd < 0)
		return errno == ESRCH ? -EAGAIN : 0;
	ended = peer_ended(pidfd);
	close(pidfd);
	return ended ? -EAGAIN : 0;
}

/*
 * Returns 0 if a live process listens; -EAGAIN if the worker's first process
 * has ended and the others are about to end; -ECONNREFUSED if no process
 * listens; or another -errno.
 */
static int knock(const struct sockaddr_un *at)
{
	int rc, fd = socket(AF_UNIX,
			    SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0)
		return -errno;
	if (connect(fd, (const struct sockaddr *)at, sizeof(*at)) == 0)
		rc = ask_for_its_maker(fd);
	else
		rc = errno == EAGAIN ? 0 : -errno; /* the backlog is full */
	close(fd);
	return rc;
}

static int refuse_running(const struct sockaddr_un *at)
{
	log_error("a worker is already running on %s: stop it, or give "
		  "another --name or --control",
		  at->sun_path);
	return -EADDRINUSE;
}

/*
 * Remove the socket of a dead worker; leave any other file in place. Returns 0;
 * -EAGAIN if that worker is about to end; or -errno, which is logged.
 */
static int remove_stale(const struct sockaddr_un *at)
{
	struct stat st;
	int rc;

	if (lstat(at->sun_path, &st) < 0)
		return errno == ENOENT
			       ? 0
			       : refuse(-errno, at->sun_path, strerror(errno));
	if (!S_ISSOCK(st.st_mode))
		return refuse(-EEXIST, at->sun_path,
			      "a file that is not a socket has this path: give "
			      "another --control PATH");
	rc = knock(at);
	if (rc == 0)
		return refuse_running(at);
	if (rc == -EAGAIN)
		return rc;
	if (rc != -ECONNREFUSED)
		return refuse(rc, at->sun_path, strerror(-rc));
	log_info("replacing the control socket of a dead worker, %s",
		 at->sun_path);
	if (unlink(at->sun_path) < 0)
		return refuse(-errno, at->sun_path, strerror(errno));
	return 0;
}

static int bind_listen(const struct sockaddr_un *at, mode_t mode)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK,
			0);
	mode_t mask;
	int rc;

	if (fd < 0)
		return refuse(-errno, at->sun_path, strerror(errno));
	mask = umask(0777 & ~mode);
	rc = bind(fd, (const struct sockaddr *)at, sizeof(*at)) ? -errno : 0;
	umask(mask);
	if (rc == 0 && listen(fd, BACKLOG) < 0) {
		rc = -errno;
		unlink(at->sun_path);
	}
	if (rc == 0)
		return fd;
	close(fd);
	return refuse(rc, at->sun_path, strerror(-rc));
}

static int open_once(const struct sockaddr_un *at, mode_t mode)
{
	int folder = folder_lock(at->sun_path), rc;

	if (folder < 0)
		return folder;
	rc = remove_stale(at);
	if (rc == 0)
		rc = bind_listen(at, mode);
	close(folder);
	return rc;
}

/*
 * When a worker is killed, its first process ends before the others
 * (supervisor.c): retry until they have ended. The directory is unlocked
 * between attempts.
 */
int listener_open(const char *path, mode_t mode)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };
	int rc;

	snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
	rc = open_once(&at, mode);
	for (int i = 0; rc == -EAGAIN && i < KNOCK_TRIES; i++) {
		wait_a_little();
		rc = open_once(&at, mode);
	}
	return rc == -EAGAIN ? refuse_running(&at) : rc;
}

void listener_close(int fd, const char *path)
{
	/* In this order: after close() a new worker may bind the path. */
	unlink(path);
	close(fd);
}
