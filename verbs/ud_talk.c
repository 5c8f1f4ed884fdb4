/*
 * The talk that makes a session of UD QPs (ud.h): this end calls the peer's UD QP, or
 * answers its call (docs/protocol.md 8.9).
 */
#include <errno.h>

#include "host/talk.h"
#include "verbs/ud.h"

static struct srdma_talk_self self_of(const struct verbs_ud *ud,
				      const struct verbs_peer *peer)
{
	return (struct srdma_talk_self){ .agent = &ud_leg(ud)->device->agent,
					 .worker = ud_leg(ud)->path,
					 .identity = ud->root->policy->identity,
					 .peers = peer->allowed,
					 .n_peers = peer->n };
}

/* The thread of the context reads the talk. 0 or -errno. */
static int watch(const struct ud_session *s)
{
	return -verbs_loop_watch(s->ud->root, srdma_channel_fd(s->talk));
}

int ud_talk_call(struct ud_session *s, const struct verbs_peer *policy)
{
	const struct srdma_talk_self self = self_of(s->ud, policy);
	const struct srdma_talk_peer peer = { .gid = s->gid,
					      .port = SRDMA_TALK_QP | s->peer };
	const struct ud_hello hello = { UD_REQUEST, s->ud->qp->ibv.qp_num,
					s->qp_num };
	uint8_t bytes[UD_HELLO];
	const struct srdma_talk_data data = { bytes, sizeof(bytes) };
	int r;

	ud_hello_write(bytes, &hello);
	r = srdma_talk_call(&s->talk, &self, &peer, &data);
	return r ? r : watch(s);
}

int ud_talk_answer(struct ud_session *s, uint64_t talk,
		   const struct verbs_peer *policy)
{
	const struct srdma_talk_self self = self_of(s->ud, policy);
	int r = srdma_talk_answer(&s->talk, &self, talk);

	return r ? r : watch(s);
}

void ud_talk_refuse(const struct verbs_ud *ud, uint64_t talk)
{
	static const struct verbs_peer none;
	const struct srdma_talk_self self = self_of(ud, &none);
	struct srdma_channel *channel;

	if (!srdma_talk_answer(&channel, &self, talk))
		srdma_channel_drop(channel);
}

int ud_talk_say(const struct ud_session *s, enum ud_hello_kind kind)
{
	const struct ud_hello hello = { kind, 0, s->qp_num };
	uint8_t bytes[UD_HELLO];
	const struct srdma_talk_data data = { bytes, sizeof(bytes) };

	ud_hello_write(bytes, &hello);
	return srdma_talk_say(s->talk, &data);
}
