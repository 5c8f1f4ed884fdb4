#include "accounts.h"

#include <stdio.h>
#include <string.h>

static int is_used(const struct account *a)
{
	return a->connections || a->holds;
}

static struct account *find(struct accounts *t, const char *name)
{
	for (unsigned i = 0; i < ACCOUNTS_MAX; i++)
		if (is_used(&t->account[i]) &&
		    strcmp(t->account[i].name, name) == 0)
			return &t->account[i];
	return NULL;
}

static struct account *add(struct accounts *t, const char *name)
{
	for (unsigned i = 0; i < ACCOUNTS_MAX; i++) {
		struct account *a = &t->account[i];

		if (is_used(a))
			continue;
		snprintf(a->name, sizeof(a->name), "%s", name);
		return a;
	}
	return NULL;
}

struct account *accounts_join(struct accounts *t, const char *name,
			      const struct account_limits *limits)
{
	struct account *a = find(t, name);

	if (!a)
		a = add(t, name);
	if (!a)
		return NULL;
	a->limits = *limits;
	if (a->connections >= limits->connections)
		return NULL;
	a->connections++;
	return a;
}

void accounts_leave(struct account *a)
{
	if (a)
		a->connections--;
}

void accounts_hold(struct account *a)
{
	a->holds++;
}

void accounts_release(struct account *a)
{
	a->holds--;
}
