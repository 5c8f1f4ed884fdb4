#include "verbs/policy.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>

#include "base/addr.h"

/* "10.0.0.0/24" or "fd00::/64"; without bits, one address. 0 or -1. */
static int read_range(struct verbs_peer *peer, char *text)
{
	char *slash = strchr(text, '/'), *end = NULL;
	unsigned long most = 128, bits;
	struct in_addr v4;

	if (slash)
		*slash = 0;
	if (inet_pton(AF_INET, text, &v4) == 1) {
		srdma_addr_gid_of4(peer->gid, &v4);
		most = 32;
	} else if (inet_pton(AF_INET6, text, peer->gid) != 1) {
		return -1;
	}
	bits = slash ? strtoul(slash + 1, &end, 10) : most;
	if (bits > most || (slash && (end == slash + 1 || *end)))
		return -1;
	peer->bits = (uint8_t)(bits + 128 - most);
	return 0;
}

/* "RANGE IDENTITY..." */
static const char *read_peer(struct verbs_policy *p, char *text)
{
	struct verbs_peer *peer = &p->peers[p->n];
	char *save, *word = strtok_r(text, " ", &save);

	if (p->n == VERBS_PEERS)
		return "more than 64 peers";
	if (!word || read_range(peer, word))
		return "a peer without a legal range of GIDs";
	while ((word = strtok_r(NULL, " ", &save))) {
		if (peer->n == VERBS_ALLOWED)
			return "more than 16 identities of a peer";
		peer->allowed[peer->n++] = word;
	}
	if (!peer->n)
		return "a peer without identities";
	p->n++;
	return NULL;
}

static const char *read_line(struct verbs_policy *p, char *line)
{
	const struct {
		const char *name;
		const char **value;
	} texts[] = { { "worker", &p->worker },
		      { "agent", &p->agent },
		      { "identity", &p->identity },
		      { "libibverbs", &p->libibverbs },
		      { "librdmacm", &p->librdmacm },
		      { "map_memory", &p->map_memory } };
	char *value = strchr(line, '=');

	if (!value)
		return "a line without =";
	*value++ = 0;
	if (!strcmp(line, "peer"))
		return read_peer(p, value);
	for (unsigned i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		if (!strcmp(line, texts[i].name) && *value) {
			*texts[i].value = value;
			return NULL;
		}
	return "an unknown or empty setting";
}

const char *verbs_policy_read(struct verbs_policy *p)
{
	const char *text = getenv(VERBS_POLICY_ENV), *why = NULL;
	char *save, *line;

	memset(p, 0, sizeof(*p));
	if (!text)
		return "not set: start the program by `srdma run -- PROGRAM`";
	if (strlen(text) >= sizeof(p->text))
		return "longer than 16,383 bytes";
	strcpy(p->text, text);
	for (line = strtok_r(p->text, "\n", &save); line && !why;
	     line = strtok_r(NULL, "\n", &save))
		why = read_line(p, line);
	if (why)
		return why;
	return p->worker && p->agent && p->identity
		       ? NULL
		       : "worker, agent and identity are needed";
}

static int fits(const struct verbs_peer *peer, const uint8_t gid[16])
{
	const unsigned whole = peer->bits / 8, rest = peer->bits % 8;

	return !memcmp(peer->gid, gid, whole) &&
	       (!rest || (peer->gid[whole] ^ gid[whole]) >> (8 - rest) == 0);
}

const struct verbs_peer *verbs_policy_peer(const struct verbs_policy *p,
					   const uint8_t gid[16])
{
	const struct verbs_peer *best = NULL;

	for (unsigned i = 0; i < p->n; i++)
		if (fits(&p->peers[i], gid) &&
		    (!best || p->peers[i].bits > best->bits))
			best = &p->peers[i];
	return best;
}

size_t verbs_policy_patterns(const struct verbs_policy *p, const char **out)
{
	size_t n = 0;

	for (unsigned i = 0; i < p->n; i++)
		for (unsigned k = 0; k < p->peers[i].n; k++)
			out[n++] = p->peers[i].allowed[k];
	return n;
}
