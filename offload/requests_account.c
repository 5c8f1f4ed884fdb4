/*
 * The account of a control connection (docs/local-interface.md 3.10): that of
 * its process, until RESTRICT gives it another one.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "log.h"
#include "requests_impl.h"

int requests_account_full(struct call *c, int err, const char *name)
{
	if (err == -ENOSPC)
		return requests_refuse(
			c, -EDQUOT,
			"the worker has its limit of %d accounts, and no room "
			"for that of %s: close other connections",
			SRDMA_LEDGER_ACCOUNTS, name);
	return requests_refuse(c, err, "no memory for the account of %s", name);
}

/* Charge a connection. 0 or -EDQUOT, with a text of that length. */
static int charge(struct srdma_account *a, char *text, size_t len)
{
	int rc = srdma_account_take(a, SRDMA_RES_CONNECTIONS, 1);

	if (rc < 0)
		srdma_account_why(a, SRDMA_RES_CONNECTIONS, 1, text, len);
	return rc;
}

int requests_account_move(struct call *c, struct srdma_account *a)
{
	int rc = charge(a, c->out.text, sizeof(c->out.text));

	if (rc < 0) {
		srdma_account_close(a);
		return rc;
	}
	requests_account_leave(c->client);
	c->client->account = a;
	return 0;
}

void requests_account_leave(struct client *client)
{
	struct srdma_account *a = client->account;

	client->account = NULL;
	if (!a)
		return;
	srdma_account_give(a, SRDMA_RES_CONNECTIONS, 1);
	srdma_account_close(a);
}

/* The account of the client's process, in the group of its user. */
static int open_process(const struct requests *q, const struct client *client,
			struct srdma_account **out)
{
	struct srdma_ledger *l = srdma_relay_ledger(q->p.relay);
	struct srdma_account *user;
	char name[64];
	int rc;

	snprintf(name, sizeof(name), "user %u", client->uid);
	rc = srdma_account_open(l, SRDMA_ACCOUNT_GROUP, name, NULL, &user);
	if (rc < 0)
		return rc;
	if (client->pid > 0)
		snprintf(name, sizeof(name), "process %d of user %u",
			 client->pid, client->uid);
	else /* in another PID namespace: programs must not be merged */
		snprintf(name, sizeof(name), "connection %u of user %u",
			 client->number, client->uid);
	rc = srdma_account_open(l, SRDMA_ACCOUNT_PROCESS, name, user, out);
	srdma_account_close(user); /* the account holds it */
	return rc;
}

static void write_refusal(struct answer *a, struct call *c, int rc)
{
	int len;

	c->out.kind = SRDMA_CTL_HELLO;
	c->out.status = (uint32_t)-rc;
	len = srdma_ctl_encode(a->data, SRDMA_CTL_ANSWER, &c->out);
	a->len = len < 0 ? 0 : (size_t)len;
	a->fds[0] = a->fds[1] = -1;
	log_debug("refused process %d: %s", c->client->pid, c->out.text);
}

int requests_join(struct requests *q, struct client *client,
		  struct answer *refusal)
{
	struct call c = { .q = q, .client = client };
	struct srdma_account *a;
	int rc = open_process(q, client, &a);

	if (rc < 0)
		rc = requests_account_full(&c, rc, "a process");
	else
		rc = requests_account_move(&c, a);
	if (rc < 0)
		write_refusal(refusal, &c, rc);
	return rc;
}
