#include "crew.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "listener.h"
#include "log.h"
#include "preference.h"
#include "process.h"
#include "thread.h"

struct member {
	struct thread thread;
	pthread_t id;
	sem_t opened; /* or failed to */
	int open_rc, rc;
};

struct crew {
	struct thread_shared shared;
	unsigned listening, running; /* members from the first on */
	struct member member[WORDS_THREADS];
};

/* Whoever ends, ends all. */
static int work(struct member *m)
{
	int rc = worker_run(&m->thread.worker);

	words_tell(&m->thread.shared->words, WORD_STOP);
	return rc;
}

static void *member_main(void *arg)
{
	struct member *m = arg;
	char name[16]; /* for ps and top */
	int rc;

	log_name_thread(m->thread.number);
	snprintf(name, sizeof(name), "srdma.%u", m->thread.number);
	pthread_setname_np(pthread_self(), name);
	rc = m->open_rc = thread_open(&m->thread);
	sem_post(&m->opened);
	if (rc < 0)
		return NULL;
	m->rc = work(m);
	thread_close(&m->thread);
	return NULL;
}

/* 0 once it is open. */
static int member_start(struct member *m)
{
	int rc;

	sem_init(&m->opened, 0, 0);
	rc = -pthread_create(&m->id, NULL, member_main, m);
	if (rc < 0) {
		log_error("thread %u cannot be started: %s", m->thread.number,
			  strerror(-rc));
		return rc;
	}
	while (sem_wait(&m->opened) < 0)
		; /* interrupted */
	sem_destroy(&m->opened);
	if (m->open_rc < 0)
		pthread_join(m->id, NULL);
	return m->open_rc;
}

/* All but the first, which is the caller's. One by one: one error is told. */
static int start_others(struct crew *c, unsigned threads)
{
	int rc = 0;

	while (rc == 0 && c->running < threads) {
		rc = member_start(&c->member[c->running]);
		if (rc == 0)
			c->running++;
	}
	return rc;
}

/* What the first of them that failed returned, else 0. */
static int join_others(struct crew *c)
{
	int rc = 0;

	while (c->running > 1) {
		struct member *m = &c->member[--c->running];

		pthread_join(m->id, NULL);
		if (m->rc < 0)
			rc = m->rc;
	}
	return rc;
}

static void tell_ready(const struct crew *c)
{
	for (unsigned i = 0; i < c->running; i++) {
		const struct thread *t = &c->member[i].thread;

		log_line("ready %s control=%s wire=%s", t->o.name, t->o.control,
			 t->worker.wire->address);
	}
	process_notify("READY=1");
}

static int serve(struct crew *c, const struct options *o)
{
	struct member *first = &c->member[0];
	int rc, ended;

	if (o->threads > 1)
		log_name_thread(0);
	rc = thread_open(&first->thread);
	if (rc < 0)
		return rc;
	preference_measure(c->shared.suites, first->thread.worker.provider);
	c->running = 1;
	rc = start_others(c, o->threads);
	if (rc == 0) {
		tell_ready(c);
		rc = work(first);
		process_notify("STOPPING=1");
	}
	words_tell(&c->shared.words, WORD_STOP);
	ended = join_others(c);
	thread_close(&first->thread);
	return rc < 0 ? rc : ended;
}

/* Control sockets come first: they tell whether a worker is running. */
static int listen_all(struct crew *c, const struct options *o)
{
	while (c->listening < o->threads) {
		struct thread *t = &c->member[c->listening].thread;

		t->shared = &c->shared;
		t->number = c->listening;
		/* Checked for the last of them (options_parse). */
		options_of_thread(&t->o, o, t->number);
		t->listener = listener_open(t->o.control);
		if (t->listener < 0)
			return t->listener;
		c->listening++;
	}
	return 0;
}

static void close_all(struct crew *c)
{
	while (c->listening) {
		struct thread *t = &c->member[--c->listening].thread;

		listener_close(t->listener, t->o.control);
	}
	words_close(&c->shared.words);
	close(c->shared.signals);
	free(c);
}

int crew_run(const struct options *o)
{
	struct crew *c = calloc(1, sizeof(*c));
	int rc;

	if (!c) {
		log_error("out of memory");
		return -ENOMEM;
	}
	c->shared.report = (struct report_out)REPORT_OUT_INIT;
	rc = c->shared.signals = process_signals();
	if (rc < 0) {
		free(c);
		return rc;
	}
	rc = words_open(&c->shared.words, o->threads);
	if (rc < 0)
		log_error("eventfd: %s", strerror(-rc));
	else
		rc = listen_all(c, o);
	if (rc == 0)
		rc = serve(c, o);
	close_all(c);
	return rc;
}
