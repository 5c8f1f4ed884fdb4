#include "verbs/ud_members.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "verbs/ud_wire.h"

/* --- those to which messages go ---------------------------------------------------- */

/* Each host has a turn, as long as it has members, then each has its second one. */
static void choose(struct ud_members *m)
{
	unsigned all = 0;

	m->n = 0;
	for (unsigned i = 0; i < m->n_hosts; i++)
		all += m->hosts[i].n;
	for (unsigned turn = 0; turn < UD_MEMBERS_GID; turn++)
		for (unsigned i = 0; i < m->n_hosts && m->n < UD_MEMBERS; i++) {
			struct ud_host *h = &m->hosts[i];

			if (turn < h->n)
				m->copies[m->n++] =
					(struct ud_copy){ h->gid,
							  &h->members[turn] };
		}
	m->left = all - m->n;
}

/* --- the members of a host --------------------------------------------------------- */

static const struct ud_member *find(const struct ud_host *h, uint32_t qp_num)
{
	for (unsigned i = 0; i < h->n; i++)
		if (h->members[i].qp_num == qp_num)
			return &h->members[i];
	return NULL;
}

/* 0, or -EPROTO: they are illegal. */
static int read_host(struct ud_host *h, const struct ud_told *told)
{
	if (told->len > SRDMA_DATA_MAX || told->len % UD_MEMBER_LEN)
		return -EPROTO;
	*h = (struct ud_host){ .round = told->round };
	memcpy(h->gid, told->gid, sizeof(h->gid));
	for (size_t at = 0; at < told->len; at += UD_MEMBER_LEN) {
		const uint32_t qp_num = srdma_load32(told->qpns + at);

		if (!qp_num || qp_num > UD_QPN_MOST)
			return -EPROTO;
		if (qp_num != told->own && !find(h, qp_num))
			h->members[h->n++].qp_num = qp_num;
	}
	return 0;
}

/* Members that stay keep their order, before new ones. */
static void replace(struct ud_host *h, const struct ud_host *by)
{
	struct ud_host next = { .round = by->round };

	memcpy(next.gid, by->gid, sizeof(next.gid));
	for (unsigned i = 0; i < h->n; i++)
		if (find(by, h->members[i].qp_num))
			next.members[next.n++] = h->members[i];
	for (unsigned i = 0; i < by->n; i++)
		if (!find(h, by->members[i].qp_num))
			next.members[next.n++] = by->members[i];
	*h = next;
}

/* --- hosts ------------------------------------------------------------------------- */

/* NULL: no memory. A new host has no members. */
static struct ud_host *host_at(struct ud_members *m, const uint8_t *gid)
{
	struct ud_host *more;

	for (unsigned i = 0; i < m->n_hosts; i++)
		if (!memcmp(m->hosts[i].gid, gid, SRDMA_GID_LEN))
			return &m->hosts[i];
	more = realloc(m->hosts, (m->n_hosts + 1) * sizeof(*more));
	if (!more)
		return NULL;
	m->hosts = more;
	more += m->n_hosts++;
	more->n = 0;
	return more;
}

int ud_members_set(struct ud_members *m, const struct ud_told *told)
{
	struct ud_host next, *h;
	int r = read_host(&next, told);

	if (r)
		return r;
	h = host_at(m, told->gid);
	if (h)
		replace(h, &next);
	choose(m); /* the hosts may have moved */
	return h ? 0 : -ENOMEM;
}

void ud_members_keep(struct ud_members *m, uint32_t round)
{
	unsigned kept = 0;

	for (unsigned i = 0; i < m->n_hosts; i++)
		if (m->hosts[i].round == round)
			m->hosts[kept++] = m->hosts[i];
	m->n_hosts = kept;
	choose(m);
}

void ud_members_forget(struct ud_members *m)
{
	free(m->hosts);
	*m = (struct ud_members){ 0 };
}
