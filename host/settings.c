#include "host/settings.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "host/error.h"
#include "host/objects.h"
#include "wire/wire.h"

enum {
	TIMEOUT_S = 30,
	RENEW_EVERY_S = 3600, /* docs/agent.md 4 and 5 */
	RENEW_LIMIT_S = 60,
	MAX_AGE_S = 86400,
	/* pairs of the messages below */
	CONNECTION_PAIRS = 15,
	REJOIN_PAIRS = 5,
	LISTENER_PAIRS = 3,
	QP_PAIRS = 8,
};

/* The default of connections, docs/protocol.md 3.3. */
static const struct srdma_protection protections[] = {
	{ .suite = 0x01, .level = SRDMA_LEVEL_AEAD, .tag_len = 16 },
	{ .suite = 0x02, .level = SRDMA_LEVEL_AEAD, .tag_len = 16 },
	{ .suite = 0x03, .level = SRDMA_LEVEL_AEAD, .tag_len = 16 },
};

static const uint8_t all_modes[] = {
	SRDMA_MODE_BASIC,
	SRDMA_MODE_PD,
	SRDMA_MODE_MEM,
	SRDMA_MODE_PD | SRDMA_MODE_MEM,
};

uint32_t srdma_settings_timeout(const struct srdma_connection_attr *attr)
{
	return attr->timeout ? attr->timeout : TIMEOUT_S;
}

/* --- checks -------------------------------------------------------------- */

static int check_names(const char *identity, const char *const *peers, size_t n)
{
	if (!identity || !*identity ||
	    !srdma_utf8_check(identity, strlen(identity)))
		return srdma_error_set(-EINVAL, "identity: name the "
						"credentials of this end");
	for (size_t i = 0; i < n; i++)
		if (!peers[i] || !srdma_utf8_check(peers[i], strlen(peers[i])))
			return srdma_error_set(-EINVAL, "peers: a pattern is "
							"no text");
	return 0;
}

static int check_qps(const struct srdma_pd *pd,
		     const struct srdma_connection_attr *a)
{
	if (!a->n_qps || a->n_qps > SRDMA_QPS_MAX)
		return srdma_error_set(-EINVAL,
				       "%zu QPs: one connection has "
				       "1 to %d",
				       a->n_qps, SRDMA_QPS_MAX);
	for (size_t i = 0; i < a->n_qps; i++)
		if (a->qps[i]->pd != pd ||
		    a->qps[i]->status != SRDMA_QP_STATUS_INIT)
			return srdma_error_set(-EINVAL,
					       "QP 0x%06x is of "
					       "another PD, or was connected "
					       "before",
					       a->qps[i]->made.qp.qpn);
	for (size_t i = 1; i < a->n_qps; i++)
		for (size_t k = 0; k < i; k++)
			if (a->qps[i] == a->qps[k])
				return srdma_error_set(
					-EINVAL, "QP 0x%06x is given twice",
					a->qps[i]->made.qp.qpn);
	return 0;
}

static int check_rendezvous(const struct srdma_settings_peer *peer,
			    const struct srdma_connection_attr *a)
{
	if (a->n_qps != 1)
		return srdma_error_set(-EINVAL,
				       "%zu QPs: srdma_connect_qp() connects "
				       "one",
				       a->n_qps);
	if (!peer->qp_num || peer->qp_num > SRDMA_MAX_QPN)
		return srdma_error_set(-EINVAL,
				       "QP number %#x of the peer: it must be "
				       "1 to %#x",
				       peer->qp_num, SRDMA_MAX_QPN);
	return 0;
}

static int check(const struct srdma_pd *pd,
		 const struct srdma_settings_peer *peer,
		 const struct srdma_connection_attr *a)
{
	int r = check_names(a->identity, a->peers, a->n_peers);

	if (!r && peer->role == SRDMA_SETTINGS_CONNECT &&
	    (!peer->host || !*peer->host || !peer->port))
		r = srdma_error_set(-EINVAL, "name the host and the port of a "
					     "listener");
	if (!r)
		r = check_qps(pd, a);
	if (!r && peer->role == SRDMA_SETTINGS_RENDEZVOUS)
		r = check_rendezvous(peer, a);
	if (!r && a->data_len > SRDMA_DATA_MAX)
		r = srdma_error_set(-EINVAL,
				    "%zu bytes of data: at most %d "
				    "can be sent",
				    a->data_len, SRDMA_DATA_MAX);
	return r;
}

/* --- fields -------------------------------------------------------------- */

static void named_text(struct srdma_message *w, const char *name,
		       const char *text)
{
	srdma_message_text(w, name);
	srdma_message_text(w, text);
}

static void named_uint(struct srdma_message *w, const char *name,
		       uint64_t value)
{
	srdma_message_text(w, name);
	srdma_message_uint(w, value);
}

static void named_bytes(struct srdma_message *w, const char *name,
			const void *data, size_t len)
{
	srdma_message_text(w, name);
	srdma_message_bytes(w, data, len);
}

static void write_names(struct srdma_message *w, const char *identity,
			const char *const *peers, size_t n)
{
	named_text(w, "identity", identity);
	srdma_message_text(w, "peer");
	srdma_message_array(w, n);
	for (size_t i = 0; i < n; i++)
		srdma_message_text(w, peers[i]);
}

static int has_suite(const struct srdma_pd *pd,
		     const struct srdma_protection *p)
{
	if (p->level == SRDMA_LEVEL_NONE)
		return pd->device->hello.flags & SRDMA_CTL_ALLOW_UNPROTECTED;
	return p->suite &&
	       memchr(pd->device->hello.suites, p->suite, SRDMA_SUITES_LEN);
}

/* Writes the protections that the worker has. */
static int write_suites(struct srdma_message *w, const struct srdma_pd *pd,
			const struct srdma_connection_attr *a)
{
	const struct srdma_protection *p =
		a->n_protections ? a->protections : protections;
	size_t n = a->n_protections ? a->n_protections
				    : sizeof(protections) / sizeof(*p);
	size_t has = 0;

	for (size_t i = 0; i < n; i++)
		has += has_suite(pd, &p[i]) ? 1 : 0;
	if (!has)
		return srdma_error_set(-ENOTSUP,
				       "the worker %s has none of "
				       "the protections, or does not permit "
				       "them",
				       pd->device->hello.name);
	srdma_message_text(w, "suites");
	srdma_message_array(w, has);
	for (size_t i = 0; i < n; i++) {
		if (!has_suite(pd, &p[i]))
			continue;
		srdma_message_array(w, 3);
		srdma_message_uint(w, p[i].suite);
		srdma_message_uint(w, p[i].level);
		srdma_message_uint(w, p[i].tag_len);
	}
	return 0;
}

static void write_modes(struct srdma_message *w, enum srdma_settings_role role,
			const struct srdma_connection_attr *a)
{
	const uint8_t *modes = a->n_modes ? a->modes : all_modes;
	size_t n = a->n_modes ? a->n_modes : sizeof(all_modes);

	if (!a->n_modes && role != SRDMA_SETTINGS_ACCEPT)
		n = 1; /* basic */
	srdma_message_text(w, "modes");
	srdma_message_array(w, n);
	for (size_t i = 0; i < n; i++)
		srdma_message_uint(w, modes[i]);
}

static void write_qp(struct srdma_message *w, const struct srdma_qp *qp)
{
	const struct srdma_qp_info *q = &qp->made.qp;

	srdma_message_map(w, QP_PAIRS);
	named_uint(w, "qpn", q->qpn);
	named_bytes(w, "eid", q->eid, sizeof(q->eid));
	named_uint(w, "pn", q->pn);
	named_uint(w, "mtu", q->mtu);
	named_uint(w, "window", q->window);
	named_uint(w, "reads", q->reads);
	named_bytes(w, "random", q->random, sizeof(q->random));
	named_text(w, "wire", qp->made.wire);
}

static void write_qps(struct srdma_message *w,
		      const struct srdma_connection_attr *a)
{
	srdma_message_text(w, "qps");
	srdma_message_array(w, a->n_qps);
	for (size_t i = 0; i < a->n_qps; i++)
		write_qp(w, a->qps[i]);
}

static void write_peer(struct srdma_message *w,
		       const struct srdma_settings_peer *peer)
{
	if (peer->role == SRDMA_SETTINGS_ACCEPT) {
		named_text(w, "do", "accept");
		named_uint(w, "arrival", peer->arrival);
		return;
	}
	named_text(w, "do", "connect");
	if (peer->role == SRDMA_SETTINGS_RENDEZVOUS) {
		srdma_message_text(w, "to");
		srdma_message_array(w, 2);
		srdma_message_bytes(w, peer->gid, SRDMA_GID_LEN);
		srdma_message_uint(w, peer->qp_num);
		return;
	}
	srdma_message_text(w, "address");
	srdma_message_array(w, 2);
	srdma_message_text(w, peer->host);
	srdma_message_uint(w, peer->port);
}

/* For a path that srdma_open_device() left relative: the agent may have another
 * working directory. */
static void write_worker(struct srdma_message *w, const struct srdma_pd *pd)
{
	char *path = realpath(pd->path, NULL);

	named_text(w, "worker", path ? path : pd->path);
	free(path);
}

static uint32_t or_default(uint32_t value, uint32_t other)
{
	return value ? value : other;
}

static void write_times(struct srdma_message *w,
			const struct srdma_connection_attr *a)
{
	named_uint(w, "timeout", srdma_settings_timeout(a));
	named_uint(w, "every", or_default(a->renew_every, RENEW_EVERY_S));
	named_uint(w, "limit", or_default(a->renew_limit, RENEW_LIMIT_S));
	named_uint(w, "max_age", or_default(a->max_age, MAX_AGE_S));
}

/* --- messages ------------------------------------------------------------ */

static int finish(struct srdma_message *w)
{
	return srdma_message_finish(w)
		       ? srdma_error_set(-ENOMEM, "no memory for "
						  "the settings")
		       : 0;
}

int srdma_settings_connection(struct srdma_message *w,
			      const struct srdma_pd *pd,
			      const struct srdma_settings_peer *peer,
			      const struct srdma_connection_attr *attr)
{
	int r = check(pd, peer, attr);

	if (r)
		return r;
	srdma_message_map(w, CONNECTION_PAIRS);
	write_peer(w, peer);
	write_names(w, attr->identity, attr->peers, attr->n_peers);
	write_worker(w, pd);
	named_bytes(w, "token", pd->token, sizeof(pd->token));
	named_text(w, "group", pd->group);
	named_bytes(w, "data", attr->data, attr->data_len);
	write_modes(w, peer->role, attr);
	write_times(w, attr);
	write_qps(w, attr);
	r = write_suites(w, pd, attr);
	return r ? r : finish(w);
}

int srdma_settings_rejoin(struct srdma_message *w, const struct srdma_pd *pd,
			  const struct srdma_connection_attr *attr)
{
	srdma_message_map(w, REJOIN_PAIRS);
	named_text(w, "do", "rejoin");
	named_text(w, "identity", attr->identity);
	write_worker(w, pd);
	named_bytes(w, "token", pd->token, sizeof(pd->token));
	srdma_message_text(w, "qpns");
	srdma_message_array(w, attr->n_qps);
	for (size_t i = 0; i < attr->n_qps; i++)
		srdma_message_uint(w, attr->qps[i]->made.qp.qpn);
	return finish(w);
}

int srdma_settings_listener(struct srdma_message *w,
			    const struct srdma_listener_attr *attr,
			    const struct srdma_settings_address *at)
{
	int r = check_names(attr->identity, attr->peers, attr->n_peers);

	if (r)
		return r;
	srdma_message_map(w, LISTENER_PAIRS + (at ? 1 : 0));
	named_text(w, "do", "listen");
	if (at) {
		srdma_message_text(w, "address");
		srdma_message_array(w, 2);
		srdma_message_text(w, at->host ? at->host : "");
		srdma_message_uint(w, at->port);
	}
	write_names(w, attr->identity, attr->peers, attr->n_peers);
	return finish(w);
}
