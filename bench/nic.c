#include "nic.h"

#include <sched.h>

#include "clock.h"
#include "rung.h"

enum { LOOKS = 2000, SPINS = 20, BUDGET = 32 };

static void must(int failed, const char *what)
{
	if (failed)
		wrong("nic", what);
}

/* why NULL: success. */
static void check(const char *why)
{
	must(why != NULL, why);
}

static void open_leg(struct nic *n, int i)
{
	struct side *s = &n->pair.side[i];

	check(bench_leg_open(&n->leg[i], s->relay, n->pair.ring,
			     n->pair.memory));
	s->leg = n->leg[i].leg;
	s->memory = n->leg[i].memory;
	s->key = n->leg[i].key;
}

static void turn(struct nic *n, int side)
{
	srdma_relay_run(n->pair.side[side].relay, clock_now(), BUDGET);
}

/*
 * Connect the QPs. Many turns are needed, because the wire port checks its
 * sockets only now and then.
 */
static void connect_qps(struct nic *n)
{
	struct pair *p = &n->pair;
	struct srdma_qp_keys k;

	turn(n, 0); /* sets the relays' clocks */
	turn(n, 1);
	pair_init_qp(p, 0);
	for (int side = 1; side >= 0; side--) {
		pair_keys(p, side, 0, &k);
		must(srdma_relay_qp_keys(p->side[side].relay, p->side[side].leg,
					 &k) ||
			     srdma_host_qp_add(n->leg[side].host,
					       p->side[side].qp[0].qpn,
					       p->depth, p->depth),
		     "cannot set up a QP");
	}
	for (int i = 0; i < LOOKS; i++) {
		turn(n, 0);
		turn(n, 1);
	}
	must(pair_state(p, 0, 0, NULL) != SRDMA_QP_RTS, "not connected");
}

/* Sleep until there is work (returns 1) or until the end (returns 0). */
static int sleep_until_work(struct nic *n)
{
	int stop;

	__atomic_store_n(&n->running, 0, __ATOMIC_RELEASE);
	pthread_mutex_lock(&n->lock);
	while (!n->run && !n->stop)
		pthread_cond_wait(&n->wake, &n->lock);
	stop = n->stop;
	pthread_mutex_unlock(&n->lock);
	__atomic_store_n(&n->running, !stop, __ATOMIC_RELEASE);
	return !stop;
}

/* Side 1 runs while the other side measures, and yields when idle. */
static void *worker(void *arg)
{
	struct nic *n = arg;
	struct srdma_relay *r = n->pair.side[1].relay;
	int idle = 0;

	while (sleep_until_work(n))
		while (__atomic_load_n(&n->run, __ATOMIC_ACQUIRE)) {
			idle = srdma_relay_run(r, clock_now(), BUDGET)
				       ? 0
				       : idle + 1;
			if (idle > SPINS)
				sched_yield();
		}
	return NULL;
}

void nic_open(struct nic *n, int threads)
{
	check(meeting_open(&n->meeting, &n->pair));
	for (int i = 0; i < 2; i++)
		open_leg(n, i);
	connect_qps(n);
	check(meeting_end(&n->meeting));
	if (threads < 2)
		return;
	pthread_mutex_init(&n->lock, NULL);
	pthread_cond_init(&n->wake, NULL);
	must(pthread_create(&n->thread, NULL, worker, n),
	     "cannot create a thread");
}

static void set(struct nic *n, int *flag, int value)
{
	if (!n->thread)
		return;
	pthread_mutex_lock(&n->lock);
	__atomic_store_n(flag, value, __ATOMIC_RELEASE);
	pthread_cond_signal(&n->wake);
	pthread_mutex_unlock(&n->lock);
}

/* Wait until the thread has changed its state. */
static void run_or_sleep(struct nic *n, int run)
{
	set(n, &n->run, run);
	while (n->thread &&
	       __atomic_load_n(&n->running, __ATOMIC_ACQUIRE) != run)
		sched_yield();
}

void nic_start(struct nic *n)
{
	run_or_sleep(n, 1);
}

void nic_pause(struct nic *n)
{
	run_or_sleep(n, 0);
}

void nic_close(struct nic *n)
{
	nic_pause(n);
	set(n, &n->stop, 1);
	if (n->thread)
		pthread_join(n->thread, NULL);
	for (int i = 0; i < 2; i++) {
		srdma_relay_destroy(n->pair.side[i].relay);
		bench_leg_close(&n->leg[i]);
	}
}

void nic_post(struct nic *n, const struct srdma_desc *d)
{
	check(bench_leg_post(&n->leg[0], d));
}

int nic_turn(struct nic *n, struct srdma_record *out, int most)
{
	srdma_leg_shm_flush(n->leg[0].shm);
	turn(n, 0);
	if (!n->thread)
		turn(n, 1);
	return srdma_host_poll(n->leg[0].host, out, most);
}
