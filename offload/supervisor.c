#include "supervisor.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "listener.h"
#include "log.h"
#include "process.h"
#include "worker_process.h"

enum {
	START_MS = 30000, /* time limit for the start of a worker process */
	STOP_MS = 10000,  /* time limit between two exits during a stop */
};

/*
 * Sent once by each other worker process to the first one after it has opened.
 */
struct opened {
	int rc; /* result of worker_process_open() */
	char wire[SRDMA_NAME_LEN];
};

struct member {
	struct worker_process process;
	struct opened opened;
	/* For all members but the first, which is this process: */
	pid_t pid;
	int pipe; /* read end; carries struct opened, and end of file when
		     the process ends */
};

struct supervisor {
	struct shared shared;
	unsigned listening; /* members with a listening socket, from the
			       first */
	unsigned started;   /* members started, besides the first */
	struct member member[SRDMA_CTL_PROCESSES];
};

static int member_open(struct member *m)
{
	m->opened.rc = worker_process_open(&m->process);
	if (m->opened.rc == 0)
		snprintf(m->opened.wire, sizeof(m->opened.wire), "%s",
			 m->process.params.wire->address);
	return m->opened.rc;
}

/* Main function of a worker process. Returns its exit code. */
static int member_main(struct member *m, int out)
{
	int rc;

	log_name_worker(m->process.number);
	process_lock_memory();
	rc = member_open(m);
	if (write(out, &m->opened, sizeof(m->opened)) < 0)
		return EXIT_FAILURE; /* the first process has ended */
	if (rc == 0) {
		rc = worker_run(m->process.worker);
		worker_process_close(&m->process);
	}
	return rc < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}

/*
 * Start the process of a member. Its pipe joins the epoll set before fork(), so
 * that no exit is missed. Returns 0 or -errno.
 */
static int member_fork(struct member *m)
{
	/* EPOLLHUP is always reported. */
	struct epoll_event end = { .data.ptr = m };
	char name[16]; /* name shown by ps and top */
	int fd[2], rc;

	if (pipe2(fd, O_CLOEXEC) < 0)
		return -errno;
	m->pipe = fd[0];
	snprintf(name, sizeof(name), "srdma.%u", m->process.number);
	rc = epoll_ctl(m->process.shared->ended, EPOLL_CTL_ADD, fd[0], &end);
	if (rc == 0)
		rc = m->pid = process_fork(name);
	if (rc < 0)
		rc = -errno;
	else if (m->pid == 0)
		exit(member_main(m, fd[1]));
	close(fd[1]);
	if (rc < 0)
		close(fd[0]);
	return rc < 0 ? rc : 0;
}

/* Start a member and wait until it has opened. Returns 0 or -errno. */
static int member_start(struct supervisor *c, struct member *m)
{
	int rc = member_fork(m);
	struct pollfd said = { .fd = m->pipe, .events = POLLIN };

	if (rc < 0) {
		log_error("worker process %u cannot be started: %s",
			  m->process.number, strerror(-rc));
		return rc;
	}
	c->started++;
	if (poll(&said, 1, START_MS) == 0) {
		log_error("worker process %u does not start",
			  m->process.number);
		return -ETIMEDOUT;
	}
	if (read(m->pipe, &m->opened, sizeof(m->opened)) != sizeof(m->opened))
		return -EIO; /* the process ended; member_join() logs a
				signal that killed it */
	return m->opened.rc;
}

/*
 * Reap a process and log a signal that killed it. Returns 0, or -EIO if the
 * process failed; it has logged its own errors.
 */
static int member_join(struct member *m)
{
	int status = -1;

	while (waitpid(m->pid, &status, 0) < 0 && errno == EINTR)
		; /* interrupted: retry */
	m->pid = 0;
	/*
	 * Other processes hold this pipe too, so close() alone does not remove
	 * it from the set.
	 */
	epoll_ctl(m->process.shared->ended, EPOLL_CTL_DEL, m->pipe, NULL);
	close(m->pipe);
	if (WIFSIGNALED(status))
		log_error(
			"worker process %u was killed by signal %d (%s): all end",
			m->process.number, WTERMSIG(status),
			strsignal(WTERMSIG(status)));
	return status ? -EIO : 0;
}

/*
 * Start all members but the first, one by one, so that only one error is
 * logged.
 */
static int start_others(struct supervisor *c, unsigned workers)
{
	int rc = 0;

	while (rc == 0 && c->started + 1 < workers)
		rc = member_start(c, &c->member[c->started + 1]);
	return rc;
}

static void kill_others(const struct supervisor *c)
{
	for (unsigned i = 1; i <= c->started; i++)
		if (c->member[i].pid) {
			log_error("worker process %u does not end: killing it",
				  i);
			kill(c->member[i].pid, SIGKILL);
		}
}

/*
 * Reap the members in the order of their exits. Returns -EIO if one failed,
 * else 0.
 */
static int join_others(struct supervisor *c)
{
	struct epoll_event end;
	unsigned left = c->started;
	int rc = 0;

	while (left) {
		int n = epoll_wait(c->shared.ended, &end, 1, STOP_MS);

		if (n == 0)
			kill_others(c);
		else if (n > 0) {
			left--;
			if (member_join(end.data.ptr) < 0)
				rc = -EIO;
		}
	}
	return rc;
}

static void tell_ready(const struct supervisor *c)
{
	for (unsigned i = 0; i <= c->started; i++)
		log_line("ready %s control=%s wire=%s",
			 c->member[i].process.o.name,
			 c->member[i].process.o.control,
			 c->member[i].opened.wire);
	process_notify("READY=1");
}

/*
 * The first member opens last: other processes must not inherit its ports, in
 * particular memory that a device writes to.
 */
static int serve(struct supervisor *c, unsigned workers)
{
	struct member *first = &c->member[0];
	int rc = start_others(c, workers), ended;

	if (rc == 0)
		rc = member_open(first);
	if (rc == 0) {
		tell_ready(c);
		rc = worker_run(first->process.worker);
		process_notify("STOPPING=1");
	}
	broadcast_tell(&c->shared.words, BROADCAST_STOP);
	if (first->process.worker)
		worker_process_close(&first->process);
	ended = join_others(c);
	return rc < 0 ? rc : ended;
}

/* With an agent of another user every user may connect; SO_PEERCRED then decides
 * (control.c). Root needs no permission. */
static mode_t control_mode(const struct options *o)
{
	const uint64_t agent = o->agent_uid;

	return agent == OPTIONS_NO_UID || agent == geteuid() || agent == 0
		       ? 0600
		       : 0666;
}

/*
 * Open the control sockets first: they detect a worker that is already running.
 */
static int listen_all(struct supervisor *c, const struct options *o)
{
	while (c->listening < o->workers) {
		struct worker_process *t = &c->member[c->listening].process;

		t->shared = &c->shared;
		t->number = c->listening;
		/* options_parse() has checked this for the last member. */
		options_of_process(&t->o, o, t->number);
		t->listener = listener_open(t->o.control, control_mode(o));
		if (t->listener < 0)
			return t->listener;
		c->listening++;
	}
	return 0;
}

int supervisor_run(const struct options *o)
{
	struct supervisor *c = calloc(1, sizeof(*c));
	int rc;

	if (!c) {
		log_error("out of memory");
		return -ENOMEM;
	}
	if (o->workers > 1)
		log_name_worker(0);
	rc = shared_open(&c->shared, o);
	if (rc == 0) {
		rc = listen_all(c, o);
		if (rc == 0)
			rc = serve(c, o->workers);
		while (c->listening) {
			struct worker_process *t =
				&c->member[--c->listening].process;

			listener_close(t->listener, t->o.control);
		}
		shared_close(&c->shared);
	}
	free(c);
	return rc;
}
