#include "port/shm/port_shm_process.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/time.h"

struct srdma_shm_process {
	struct srdma_shm_process *next;
	struct srdma_copier *copier;
	int pid;
	int wake; /* eventfd that the copier rings */
	uint32_t legs;
	uint32_t first, end; /* tasks under way, modulo SRDMA_COPIER_SLOTS */
	uint32_t progress;   /* of the copier, at the last look */
	uint64_t since;	     /* ns, of the last look that saw another progress,
				or no task; 0: none has */
	bool failed;	     /* a copy took too long */
	/* Regions whose probes wait, the oldest first: all slots are used. A
	 * process may have all regions of the worker. */
	TAILQ_HEAD(, srdma_shm_region) probes;
	struct srdma_shm_task task[SRDMA_COPIER_SLOTS];
};

static struct srdma_shm_host *host_of(const struct srdma_shm_leg *leg)
{
	return (struct srdma_shm_host *)leg->c.conn.port;
}

static int refuse(const struct srdma_shm_leg *leg, int err, const char *why)
{
	leg->c.conn.port->why = why;
	return err;
}

/* --- processes ------------------------------------------------------------ */

static void process_free(struct srdma_shm_host *h,
			 struct srdma_shm_process *process)
{
	struct srdma_shm_process **at = &h->processes;

	while (*at != process)
		at = &(*at)->next;
	*at = process->next;
	if (h->served == process)
		h->served = NULL;
	h->process_count--;
	srdma_copier_destroy(process->copier);
	srdma_shm_port_unwatch(&h->p, process->wake);
	close(process->wake);
	free(process);
}

/*
 * A process without legs is kept while a copy is under way, so that a program
 * that opens one leg after the other cannot make the worker start one thread
 * after the other.
 */
static bool is_unused(const struct srdma_shm_process *process)
{
	if (process->legs)
		return false;
	return process->failed ? !srdma_copier_is_running(process->copier)
			       : srdma_copier_is_idle(process->copier);
}

static void sweep(struct srdma_shm_host *h)
{
	struct srdma_shm_process *process, *next;

	for (process = h->processes; process; process = next) {
		next = process->next;
		if (is_unused(process))
			process_free(h, process);
	}
}

static struct srdma_shm_process *find(struct srdma_shm_host *h, int pid)
{
	struct srdma_shm_process *process = h->processes;

	while (process &&
	       (process->pid != pid || srdma_copier_has_ended(process->copier)))
		process = process->next;
	return process;
}

static int process_create(struct srdma_shm_process **out,
			  const struct srdma_shm_leg *leg)
{
	struct srdma_shm_host *h = host_of(leg);
	struct srdma_copier_params params = {
		.pid = leg->pid,
		.pidfd = leg->pidfd,
		.bell_fd = h->p.bell.fd,
		.spawn = h->spawn,
	};
	struct srdma_shm_process *process = calloc(1, sizeof(*process));
	int r;

	if (!process)
		return -ENOMEM;
	TAILQ_INIT(&process->probes);
	process->pid = leg->pid;
	process->wake = srdma_doorbell_eventfd();
	r = process->wake < 0
		    ? process->wake
		    : srdma_shm_port_watch(&h->p, process->wake, NULL);
	if (!r) {
		params.wake = process->wake;
		r = srdma_copier_create(&process->copier, &params);
	}
	if (r) {
		if (process->wake >= 0)
			close(process->wake);
		free(process);
		return r;
	}
	process->next = h->processes;
	h->processes = process;
	h->process_count++;
	*out = process;
	return 0;
}

static int attach(struct srdma_shm_leg *leg)
{
	struct srdma_shm_host *h = host_of(leg);
	struct srdma_shm_process *process;
	int r = 0;

	sweep(h);
	process = find(h, leg->pid);
	if (process && process->failed)
		return refuse(leg, -EBUSY,
			      "the memory of this process did not answer for "
			      "4 s: use pd.alloc(), and no memory with a fault "
			      "handler in user space");
	if (!process && h->process_count == SRDMA_SHM_PROCESSES)
		return refuse(leg, -EDQUOT,
			      "the worker copies the memory of 256 processes "
			      "already: use pd.alloc()");
	if (!process)
		r = process_create(&process, leg);
	if (r)
		return refuse(leg, r,
			      "no memory, thread or file descriptor to copy "
			      "the memory of this process: use pd.alloc()");
	process->legs++;
	leg->process = process;
	return 0;
}

int srdma_shm_process_join(struct srdma_shm_leg *leg)
{
	if (leg->process)
		return 0;
	if (!host_of(leg)->spawn)
		return refuse(leg, -EPERM,
			      "this worker takes memfds only: use pd.alloc()");
	if (leg->pidfd < 0)
		return refuse(leg, -ESRCH,
			      "the worker does not know the process of this "
			      "leg: use pd.alloc()");
	/* Before find(): a process that is found there has had the pid since
	 * before this call, so it is the process of the leg. */
	if (srdma_copier_process_ended(leg->pidfd))
		return refuse(leg, -ESRCH,
			      "the process that opened this leg has ended: "
			      "open a PD of this process, or use pd.alloc()");
	return attach(leg);
}

void srdma_shm_process_leave(struct srdma_shm_leg *leg)
{
	struct srdma_shm_process *process = leg->process;

	if (!process)
		return;
	for (uint32_t i = 0; i < SRDMA_COPIER_SLOTS; i++)
		if (process->task[i].leg == leg)
			process->task[i].leg = NULL;
	leg->process = NULL;
	process->legs--;
	sweep(host_of(leg));
}

void srdma_shm_process_clear(struct srdma_shm_host *h)
{
	while (h->processes)
		process_free(h, h->processes);
}

/* The probe of a region waits no longer. */
static void take_probe(struct srdma_shm_process *process,
		       struct srdma_shm_region *region)
{
	TAILQ_REMOVE(&process->probes, region, next_probe);
	region->waits = false;
}

void srdma_shm_process_forget(struct srdma_shm_region *region)
{
	struct srdma_shm_process *process =
		srdma_shm_leg_of(region->r.leg)->process;

	if (region->waits)
		take_probe(process, region);
	for (uint32_t i = 0; process && i < SRDMA_COPIER_SLOTS; i++)
		if (process->task[i].region == region)
			process->task[i].region = NULL;
}

/* --- tasks ---------------------------------------------------------------- */

static void fill(struct srdma_copy *copy, const struct srdma_shm_task *task)
{
	static const enum srdma_copy_kind kinds[] = {
		[SRDMA_SHM_PROBE] = SRDMA_COPY_PROBE,
		[SRDMA_SHM_READ] = SRDMA_COPY_READ,
		[SRDMA_SHM_WRITE] = SRDMA_COPY_WRITE,
		[SRDMA_SHM_ATOMIC] = SRDMA_COPY_ATOMIC,
		[SRDMA_SHM_RECORD] = SRDMA_COPY_NONE,
	};
	const struct srdma_dma *dma = &task->dma;

	copy->kind = kinds[task->kind];
	if (task->region && task->region->map.at)
		copy->kind = SRDMA_COPY_NONE;
	copy->addr = dma->addr;
	copy->len = dma->len;
	copy->how = task->how;
	if (copy->kind == SRDMA_COPY_PROBE) {
		copy->addr = task->region->r.base;
		copy->len = task->region->r.length;
	}
	if (copy->kind == SRDMA_COPY_WRITE)
		memcpy(copy->data, dma->buf->data + dma->buf_at, dma->len);
}

int srdma_shm_process_start(const struct srdma_shm_task *task)
{
	struct srdma_shm_process *process = task->leg->process;
	struct srdma_copy *copy;

	if (process->failed)
		return -ETIMEDOUT;
	copy = srdma_copier_reserve(process->copier);
	if (!copy)
		return -EAGAIN;
	fill(copy, task);
	process->task[process->end++ % SRDMA_COPIER_SLOTS] = *task;
	task->leg->c.under_way++;
	srdma_copier_put(process->copier);
	return 0;
}

/* Starts as many probes that wait as there are free slots. */
static void start_probes(struct srdma_shm_process *process)
{
	struct srdma_shm_region *region;

	while ((region = TAILQ_FIRST(&process->probes))) {
		if (srdma_shm_process_start(&(struct srdma_shm_task){
			    .kind = SRDMA_SHM_PROBE,
			    .leg = srdma_shm_leg_of(region->r.leg),
			    .region = region,
		    }))
			return;
		take_probe(process, region);
	}
}

int srdma_shm_process_probe(struct srdma_shm_region *region)
{
	struct srdma_shm_process *process =
		srdma_shm_leg_of(region->r.leg)->process;

	if (process->failed)
		return -ETIMEDOUT;
	region->opening = 1;
	region->waits = true;
	TAILQ_INSERT_TAIL(&process->probes, region, next_probe);
	start_probes(process);
	return 0;
}

/* Returns the number of events. */
static int finish(struct srdma_shm_task *task, const struct srdma_copy *copy,
		  struct srdma_event *ev)
{
	int status = copy ? copy->status : -ETIMEDOUT;

	if (!task->leg)
		return 0;
	task->leg->c.under_way--;
	if (task->kind == SRDMA_SHM_RECORD) {
		if (!status)
			srdma_shm_leg_record(task->leg, task->slot,
					     task->record);
		return 0;
	}
	if (task->kind == SRDMA_SHM_PROBE) {
		if (task->region)
			task->region->status = status;
		if (task->region)
			task->region->opening = 0;
		return 0;
	}
	if (!status)
		srdma_shm_region_finish(task, copy->data);
	*ev = (struct srdma_event){
		.kind = SRDMA_EV_DMA_DONE,
		.status = status,
		.conn = &task->leg->c.conn,
		.cookie = task->dma.cookie,
	};
	return 1;
}

/* After a failure all tasks end, made or not. */
static int has_result(const struct srdma_shm_process *process)
{
	return process->first != process->end &&
	       (process->failed || srdma_copier_made(process->copier));
}

static int process_poll(struct srdma_shm_process *process,
			struct srdma_event *ev, int n)
{
	int got = 0;

	while (got < n && has_result(process)) {
		struct srdma_shm_task *task =
			&process->task[process->first++ % SRDMA_COPIER_SLOTS];

		got += finish(task,
			      process->failed
				      ? NULL
				      : srdma_copier_made(process->copier),
			      &ev[got]);
		task->leg = NULL;
		task->region = NULL;
		if (!process->failed)
			srdma_copier_take(process->copier);
	}
	start_probes(process);
	return got;
}

int srdma_shm_process_poll(struct srdma_shm_host *h, struct srdma_event *ev,
			   int n)
{
	uint32_t looks = 0;
	int got = 0;

	if (!h->processes)
		return 0;
	/* Begins behind the process that was served last. */
	do {
		struct srdma_shm_process *i = h->served && h->served->next
						      ? h->served->next
						      : h->processes;

		got += process_poll(i, ev + got, n - got);
		h->served = i;
	} while (got < n && ++looks < h->process_count);
	return got;
}

int srdma_shm_process_has_work(const struct srdma_shm_host *h)
{
	const struct srdma_shm_process *process = h->processes;

	while (process && !has_result(process))
		process = process->next;
	return process != NULL;
}

/* --- time limit ------------------------------------------------------------ */

static void fail(struct srdma_shm_host *h, struct srdma_shm_process *process)
{
	struct srdma_shm_region *region;

	process->failed = true;
	srdma_copier_stop(process->copier);
	/* Their regions have no result: they end with their legs. */
	while ((region = TAILQ_FIRST(&process->probes)))
		take_probe(process, region);
	for (struct srdma_shm_conn *c = h->p.conns; c; c = c->next)
		if (srdma_shm_leg_of(&c->conn)->process == process)
			srdma_shm_conn_end(c, -ETIMEDOUT);
}

static void look(struct srdma_shm_host *h, struct srdma_shm_process *process,
		 uint64_t now)
{
	uint32_t progress = srdma_copier_progress(process->copier);

	if (process->failed)
		return;
	if (process->progress != progress || !process->since ||
	    srdma_copier_is_idle(process->copier))
		process->since = now;
	process->progress = progress;
	if (now - process->since >= SRDMA_SHM_COPY_LIMIT_MS * SRDMA_MS)
		fail(h, process);
}

uint64_t srdma_shm_process_look(struct srdma_port *port, uint64_t now)
{
	struct srdma_shm_host *h = (struct srdma_shm_host *)port;

	sweep(h);
	for (struct srdma_shm_process *i = h->processes; i; i = i->next)
		look(h, i, now);
	return h->processes ? now + SRDMA_SHM_COPY_LOOK_MS * SRDMA_MS
			    : SRDMA_NEVER;
}
