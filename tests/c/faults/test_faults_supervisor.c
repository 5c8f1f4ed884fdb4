/*
 * Each call of a worker with two processes fails once, from its start to its end:
 * in the first process, which starts the second one and waits for its end
 * (docs/architecture.md). The worker serves, or reports that it failed; both
 * processes end, and no socket is left.
 */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "faults/faults.h"
#include "log.h"
#include "options.h"
#include "preference.h"
#include "support/shm_pair.h"
#include "supervisor.h"

/* In place of that of the worker, whose calls are those of test_faults_keys. */
void preference_measure(uint8_t suites[SRDMA_CTL_SUITES_LEN],
			struct srdma_provider *provider)
{
	(void)suites;
	(void)provider;
}

/* The name of the function that failed, and what the worker returned. */
struct result {
	char failed[32];
	int rc;
};

struct supervisor_scene {
	char dir[64], control[96], wire[80];
	int notices; /* NOTIFY_SOCKET */
	int out;     /* pipe of the result */
};

static void parse(struct supervisor_scene *s, struct options *o)
{
	static char words[][16] = { "srdma-offload", "--name",	  "a",
				    "--host-dev",    "shm",	  "--control",
				    "--wire-dev",    "--workers", "2" };
	char *argv[] = { words[0], words[1], words[2],	 words[3],
			 words[4], words[5], s->control, words[6],
			 s->wire,  words[7], words[8],	 NULL };

	if (options_parse(o, (int)(sizeof(argv) / sizeof(*argv)) - 1, argv) !=
	    OPTIONS_RUN)
		fail_msg("%s", o->error);
}

/* In a process of its own. It has a signal to end before it starts. */
static void worker(struct supervisor_scene *s, unsigned long n)
{
	struct options o;
	struct result r = { .failed = "" };
	const char *failed;
	sigset_t set;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	parse(s, &o);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	raise(SIGTERM);
	faults_arm(n);
	r.rc = supervisor_run(&o);
	failed = faults_disarm();
	snprintf(r.failed, sizeof(r.failed), "%s", failed ? failed : "");
	_exit(write(s->out, &r, sizeof(r)) == sizeof(r) ? 0 : 1);
}

static void open_scene(struct supervisor_scene *s)
{
	struct sockaddr_un at = { .sun_family = AF_UNIX };

	shm_make_dir(s->dir);
	snprintf(s->control, sizeof(s->control), "%s/control", s->dir);
	snprintf(s->wire, sizeof(s->wire), "shm:%s", s->dir);
	snprintf(at.sun_path, sizeof(at.sun_path), "%s/notices", s->dir);
	s->notices = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	assert_int_equal(bind(s->notices, (struct sockaddr *)&at, sizeof(at)),
			 0);
	assert_int_equal(setenv("NOTIFY_SOCKET", at.sun_path, 1), 0);
}

/* Nothing is left in the folder, but for a socket that could not be removed. */
static void close_scene(struct supervisor_scene *s, const char *failed)
{
	static const char *const sockets[] = { "control", "control.1", "a.sock",
					       "a.1.sock" };
	char path[96];

	close(s->notices);
	assert_int_equal(unlink(getenv("NOTIFY_SOCKET")), 0);
	if (strcmp(failed, "unlink") == 0 || strcmp(failed, "lstat") == 0)
		for (size_t i = 0; i < sizeof(sockets) / sizeof(*sockets);
		     i++) {
			snprintf(path, sizeof(path), "%s/%s", s->dir,
				 sockets[i]);
			unlink(path);
		}
	if (rmdir(s->dir))
		fail_msg("%s after %s failed: %s", s->dir, failed,
			 strerror(errno));
}

static void start_to_end(void *ctx, unsigned long n)
{
	struct supervisor_scene s;
	struct result r;
	int pipes[2], status;
	pid_t pid;

	(void)ctx;
	open_scene(&s);
	assert_int_equal(pipe(pipes), 0);
	s.out = pipes[1];
	pid = fork();
	if (pid == 0)
		worker(&s, n);
	close(pipes[1]);
	assert_int_equal(read(pipes[0], &r, sizeof(r)), sizeof(r));
	/* the end of the pipe: the other process has ended too */
	assert_int_equal(read(pipes[0], &status, 1), 0);
	close(pipes[0]);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	if (!*r.failed)
		assert_int_equal(r.rc, 0);
	assert_true(r.rc <= 0);
	faults_saw(r.failed);
	close_scene(&s, r.failed);
}

static void test_worker_starts_and_ends(void **state)
{
	(void)state;
	log_set_level(LEVEL_ERROR);
	assert_true(faults_each(start_to_end, NULL) > 60);
}

static void test_every_function_failed(void **state)
{
	static const char *const names[] = {
		"fork",	  "pipe2",	   "signalfd",	"waitpid",
		"sendto", "read",	   "epoll_ctl", "epoll_wait",
		"poll",	  "epoll_create1", "calloc",	NULL,
	};

	(void)state;
	faults_all(names);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_worker_starts_and_ends),
		cmocka_unit_test(test_every_function_failed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
