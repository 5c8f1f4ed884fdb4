#include "host/talk.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/random.h>

#include "host/error.h"
#include "port/port.h"

enum { SELF_PAIRS = 4 }; /* of write_self() */

static int finish(struct srdma_message *w)
{
	return srdma_message_finish(w) ? srdma_error_set(-ENOMEM, "no memory")
				       : 0;
}

static void pair_text(struct srdma_message *w, const char *name,
		      const char *text)
{
	srdma_message_text(w, name);
	srdma_message_text(w, text);
}

/* Begins a message of `more` further pairs. */
static void write_self(struct srdma_message *w, const char *what,
		       const struct srdma_talk_self *self, size_t more)
{
	/* The agent has another working directory. */
	char *path = realpath(self->worker, NULL);

	srdma_message_map(w, SELF_PAIRS + more);
	pair_text(w, "do", what);
	pair_text(w, "identity", self->identity);
	pair_text(w, "worker", path ? path : self->worker);
	srdma_message_text(w, "peer");
	srdma_message_array(w, self->n_peers);
	for (size_t i = 0; i < self->n_peers; i++)
		srdma_message_text(w, self->peers[i]);
	free(path);
}

/* A port or UD QP that a program serves, and the proof that it is the same program. */
struct service {
	const char *kind; /* port or qpn */
	uint32_t number;
	const char *proof; /* key or token */
	const uint8_t *bytes;
	size_t len;
};

static struct service service_of(const struct srdma_talk_port *port)
{
	return (struct service){ "port", port->number, "key", port->key,
				 sizeof(port->key) };
}

static int write_service(struct srdma_message *w,
			 const struct srdma_talk_self *self,
			 const struct service *s)
{
	write_self(w, "serve", self, 2);
	srdma_message_text(w, s->kind);
	srdma_message_uint(w, s->number);
	srdma_message_text(w, s->proof);
	srdma_message_bytes(w, s->bytes, s->len);
	return finish(w);
}

static int draw(uint8_t key[SRDMA_TALK_KEY_LEN])
{
	if (getrandom(key, SRDMA_TALK_KEY_LEN, 0) == SRDMA_TALK_KEY_LEN)
		return 0;
	return srdma_error_set(-EIO, "the kernel gave no random bytes");
}

static int serve(struct srdma_lasting_channel **out,
		 const struct srdma_talk_self *self, const struct service *s)
{
	struct srdma_message first = { 0 }, again = { 0 };
	const struct srdma_lasting_params params = { .agent = self->agent,
						     .confirms = "serving",
						     .first = &first,
						     .again = &again,
						     .fd = -1 };
	int r = write_service(&first, self, s);

	*out = NULL;
	if (!r)
		r = write_service(&again, self, s);
	if (!r)
		r = srdma_lasting_open(out, &params);
	srdma_message_free(&first);
	srdma_message_free(&again);
	return r;
}

int srdma_talk_serve(struct srdma_lasting_channel **out,
		     const struct srdma_talk_self *self,
		     struct srdma_talk_port *port)
{
	const int r = draw(port->key);
	const struct service s = service_of(port);

	*out = NULL;
	return r ? r : serve(out, self, &s);
}

int srdma_talk_serve_qp(struct srdma_lasting_channel **out,
			const struct srdma_talk_self *self, uint32_t qp_num,
			const uint8_t *token)
{
	const struct service s = { "qpn", qp_num, "token", token,
				   SRDMA_TOKEN_LEN };

	return serve(out, self, &s);
}

int srdma_talk_keep(struct srdma_lasting_channel *service,
		    const struct srdma_talk_self *self,
		    const struct srdma_talk_port *port)
{
	const struct service s = service_of(port);
	struct srdma_message again = { 0 };
	int r = write_service(&again, self, &s);

	if (r)
		srdma_message_free(&again);
	else
		srdma_lasting_again(service, &again);
	return r;
}

static int open_channel(struct srdma_channel **out,
			const struct srdma_talk_self *self,
			struct srdma_message *first)
{
	int r = finish(first);

	*out = NULL;
	if (!r)
		r = srdma_channel_open(out, self->agent, first, NULL,
				       SRDMA_CHANNEL_TIMEOUT_MS);
	srdma_message_free(first);
	return r;
}

int srdma_talk_call(struct srdma_channel **out,
		    const struct srdma_talk_self *self,
		    const struct srdma_talk_peer *peer,
		    const struct srdma_talk_data *data)
{
	struct srdma_message w = { 0 };

	write_self(&w, "talk", self, 3);
	srdma_message_text(&w, "to");
	srdma_message_array(&w, 2);
	srdma_message_bytes(&w, peer->gid, SRDMA_GID_LEN);
	srdma_message_uint(&w, peer->port);
	srdma_message_text(&w, "from");
	srdma_message_uint(&w, peer->own);
	srdma_message_text(&w, "data");
	srdma_message_bytes(&w, data->bytes, data->len);
	return open_channel(out, self, &w);
}

int srdma_talk_group(struct srdma_channel **out,
		     const struct srdma_talk_self *self,
		     const struct srdma_talk_group *group)
{
	struct srdma_message w = { 0 };

	write_self(&w, "group", self, 4);
	srdma_message_text(&w, "group");
	srdma_message_bytes(&w, group->gid, SRDMA_GID_LEN);
	srdma_message_text(&w, "qpn");
	srdma_message_uint(&w, group->qp_num);
	srdma_message_text(&w, "token");
	srdma_message_bytes(&w, group->token, SRDMA_TOKEN_LEN);
	srdma_message_text(&w, "member");
	srdma_message_uint(&w, group->member != 0);
	return open_channel(out, self, &w);
}

int srdma_talk_answer(struct srdma_channel **out,
		      const struct srdma_talk_self *self, uint64_t talk)
{
	struct srdma_message w = { 0 };

	write_self(&w, "answer", self, 1);
	srdma_message_text(&w, "talk");
	srdma_message_uint(&w, talk);
	return open_channel(out, self, &w);
}

int srdma_talk_say(struct srdma_channel *talk,
		   const struct srdma_talk_data *data)
{
	const int64_t deadline =
		srdma_socket_deadline(SRDMA_CHANNEL_TIMEOUT_MS);
	struct srdma_message w = { 0 };
	int r;

	srdma_message_map(&w, 2);
	pair_text(&w, "do", "say");
	srdma_message_text(&w, "data");
	srdma_message_bytes(&w, data->bytes, data->len);
	r = finish(&w);
	if (!r)
		r = srdma_channel_send(talk, &w, NULL, deadline);
	srdma_message_free(&w);
	return r;
}
