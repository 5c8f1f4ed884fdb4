#include "host/objects.h"

#include <errno.h>
#include <string.h>

#include "base/bytes.h"
#include "host/error.h"
#include "host/leg_shm.h"
#include "host/leg_verbs.h"
#include "port/port.h"

int srdma_device_check_leg(const struct srdma_device *d)
{
	switch (d->hello.host_kind) {
	case SRDMA_PORT_SHM:
		return 0;
	case SRDMA_PORT_VERBS:
		return srdma_leg_verbs_check();
	}
	return srdma_error_set(-ENOTSUP,
			       "the worker at %s has legs of kind %u, which "
			       "this library does not know: use a worker and a "
			       "library of the same release",
			       d->path, d->hello.host_kind);
}

/* OPEN with the descriptors of out. The caller wipes *answer. */
static int ask(struct srdma_pd *pd, uint32_t ring,
	       const struct srdma_socket_fds *out, struct srdma_socket_fds *in,
	       struct srdma_ctl_open_answer *answer)
{
	struct srdma_ctl_msg m = { .kind = SRDMA_CTL_OPEN };
	int r;

	m.open.ring = ring;
	m.open.flags = *pd->group ? SRDMA_CTL_SHARED : 0;
	r = srdma_lasting_control_call(pd->control, &m, out, in);
	if (r)
		return r;
	*answer = m.opened;
	srdma_wipe(&m.opened, sizeof(m.opened));
	pd->number = answer->leg;
	memcpy(pd->token, answer->token, sizeof(pd->token));
	srdma_lasting_control_set_leg(pd->control, pd->token);
	return 0;
}

static int open_shm(struct srdma_pd *pd, uint32_t ring)
{
	struct srdma_socket_fds out = { .n = SRDMA_LEG_SHM_OPEN_FDS }, in;
	struct srdma_ctl_open_answer answer;
	struct srdma_leg_shm *leg;
	int r = srdma_leg_shm_create(&leg, ring);

	if (r)
		return srdma_error_set(r, "shared memory for %u records: %s",
				       ring, strerror(-r));
	pd->leg = srdma_leg_shm_base(
		leg, pd->device->restricted
			     ? 0
			     : srdma_lasting_control_pid(pd->control));
	memcpy(out.fd, srdma_leg_shm_fds(leg),
	       sizeof(int) * SRDMA_LEG_SHM_OPEN_FDS);
	r = ask(pd, ring, &out, &in, &answer);
	if (r)
		return r;
	srdma_wipe(&answer, sizeof(answer));
	r = in.n == SRDMA_LEG_SHM_ANSWER_FDS ? srdma_leg_shm_attach(leg, in.fd)
					     : -EPROTO;
	srdma_socket_close_fds(&in);
	if (r)
		return srdma_error_set(-EPROTO,
				       "the worker at %s sent "
				       "descriptors of a leg that cannot be "
				       "used: use a worker and a library of "
				       "the same release",
				       pd->path);
	return 0;
}

static int open_verbs(struct srdma_pd *pd, uint32_t ring)
{
	struct srdma_leg_verbs_params params = { .ring = ring };
	struct srdma_ctl_open_answer answer;
	int r = ask(pd, ring, NULL, NULL, &answer);

	if (r)
		return r;
	params.address = answer.address;
	memcpy(params.token, answer.token, sizeof(params.token));
	r = srdma_leg_verbs_create(
		&pd->leg, &params,
		srdma_socket_deadline(SRDMA_CONTROL_TIMEOUT_MS));
	srdma_wipe(&params, sizeof(params));
	srdma_wipe(&answer, sizeof(answer));
	return r;
}

int srdma_pd_open_leg(struct srdma_pd *pd, uint32_t ring)
{
	return pd->device->hello.host_kind == SRDMA_PORT_VERBS
		       ? open_verbs(pd, ring)
		       : open_shm(pd, ring);
}
