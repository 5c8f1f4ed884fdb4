#include "process.h"

#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "log.h"

/*
 * Keys must not reach swap. If locked memory is limited, MCL_FUTURE would make
 * later mappings of host memory fail, so memory is locked only without a limit.
 */
void process_lock_memory(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 &&
	    limit.rlim_cur == RLIM_INFINITY &&
	    mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) == 0)
		return;
	log_debug("memory is not locked: keys may reach swap; raise the "
		  "limit of locked memory to unlimited");
}

void process_harden(void)
{
	const struct rlimit none = { 0, 0 };

	if (prctl(PR_SET_DUMPABLE, 0) < 0 || setrlimit(RLIMIT_CORE, &none) < 0)
		log_error("core dumps cannot be switched off: %s",
			  strerror(errno));
	process_lock_memory();
}

void process_raise_files(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	limit.rlim_cur = limit.rlim_max;
	if (setrlimit(RLIMIT_NOFILE, &limit) < 0)
		log_debug("limit of open files: %s", strerror(errno));
}

pid_t process_fork(const char *name)
{
	const pid_t parent = getpid(), child = fork();

	if (child)
		return child;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(EXIT_FAILURE); /* the parent ended before prctl() */
	prctl(PR_SET_NAME, name);
	return 0;
}

int process_signals(void)
{
	sigset_t set;
	int fd;

	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGUSR1);
	if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
		return -errno;
	signal(SIGPIPE, SIG_IGN);
	signal(SIGCHLD, SIG_DFL); /* if SIGCHLD is ignored, waitpid() fails */
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

void process_notify(const char *state)
{
	const char *path = getenv("NOTIFY_SOCKET");
	struct sockaddr_un to = { .sun_family = AF_UNIX };
	size_t len = path ? strlen(path) : 0;
	int fd;

	if (len == 0 || len >= sizeof(to.sun_path))
		return;
	memcpy(to.sun_path, path, len);
	if (*path == '@') /* address in the abstract namespace */
		to.sun_path[0] = '\0';
	len += offsetof(struct sockaddr_un, sun_path);
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || sendto(fd, state, strlen(state), MSG_NOSIGNAL,
			     (struct sockaddr *)&to, (socklen_t)len) < 0)
		log_error("NOTIFY_SOCKET %s: %s", path, strerror(errno));
	if (fd >= 0)
		close(fd);
}
