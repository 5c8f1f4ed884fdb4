#include "memory/exposed.h"

#include <errno.h>
#include <stdlib.h>

/*
 * A search tree (treap) of ranges by their first byte, for each trust set,
 * access (written or only read) and kind (shared or not) of a file: one search
 * that takes logarithmic time tells whether any range of a tree has a byte of
 * another range. A list of all regions would let a program that registers many
 * stop the worker.
 */
struct srdma_exposed_set {
	struct srdma_exposed_set *next;
	struct srdma_exposed_file *file;
	uint64_t trust;
	uint32_t ranges;
	struct srdma_exposed *root[2][2]; /* [written][shared] */
};

struct srdma_exposed_file {
	struct srdma_exposed_file *next;
	uint64_t dev, ino;
	struct srdma_exposed_set *sets;
};

/* --- one tree ----------------------------------------------------------- */

static uint64_t most_of(const struct srdma_exposed *e)
{
	return e ? e->most : 0;
}

static void measure(struct srdma_exposed *e)
{
	e->most = e->last;
	for (int i = 0; i < 2; i++)
		if (most_of(e->child[i]) > e->most)
			e->most = e->child[i]->most;
}

/* The order of a tree: equal ranges differ in their address. */
static int before(const struct srdma_exposed *a, const struct srdma_exposed *b)
{
	return a->first != b->first ? a->first < b->first : a < b;
}

/* Divide a tree into the ranges before `at` and the others. */
static void split(struct srdma_exposed *tree, const struct srdma_exposed *at,
		  struct srdma_exposed *out[2])
{
	int first;

	out[0] = out[1] = NULL;
	if (!tree)
		return;
	first = before(tree, at);
	split(tree->child[first], at, out);
	tree->child[first] = out[!first];
	measure(tree);
	out[!first] = tree;
}

/* All ranges of a are before those of b. */
static struct srdma_exposed *merge(struct srdma_exposed *a,
				   struct srdma_exposed *b)
{
	if (!a || !b)
		return a ? a : b;
	if (a->priority > b->priority) {
		a->child[1] = merge(a->child[1], b);
		measure(a);
		return a;
	}
	b->child[0] = merge(a, b->child[0]);
	measure(b);
	return b;
}

static void insert(struct srdma_exposed **root, struct srdma_exposed *e)
{
	struct srdma_exposed *part[2];

	split(*root, e, part);
	*root = merge(merge(part[0], e), part[1]);
}

static struct srdma_exposed *without(struct srdma_exposed *tree,
				     const struct srdma_exposed *e)
{
	int side = before(tree, e);

	if (tree == e)
		return merge(tree->child[0], tree->child[1]);
	tree->child[side] = without(tree->child[side], e);
	measure(tree);
	return tree;
}

/*
 * If the left subtree reaches `first` and no range of it has a byte in common,
 * all of its ranges that reach so far begin behind `last`, and so do those on
 * the right.
 */
static int meets(const struct srdma_exposed *tree, uint64_t first,
		 uint64_t last)
{
	while (tree && (tree->first > last || tree->last < first)) {
		const struct srdma_exposed *left = tree->child[0];

		tree = left && left->most >= first ? left : tree->child[1];
	}
	return tree != NULL;
}

/* --- files and trust sets ------------------------------------------------ */

static uint64_t bucket_of(const struct srdma_exposed_table *t, uint64_t dev,
			  uint64_t ino)
{
	const uint64_t mixed =
		(ino ^ t->salt) * UINT64_C(0x9e3779b97f4a7c15) + dev;

	return (mixed * (t->salt | 1)) >> (64 - SRDMA_EXPOSED_BITS);
}

static struct srdma_exposed_file **place_of(struct srdma_exposed_table *t,
					    uint64_t dev, uint64_t ino)
{
	struct srdma_exposed_file **at = &t->bucket[bucket_of(t, dev, ino)];

	while (*at && ((*at)->dev != dev || (*at)->ino != ino))
		at = &(*at)->next;
	return at;
}

static int set_meets(const struct srdma_exposed_set *s,
		     const struct srdma_exposure *w)
{
	for (int written = 0; written < 2; written++)
		for (int shared = 0; shared < 2; shared++)
			if ((written || w->written) && !(shared && w->shared) &&
			    meets(s->root[written][shared], w->first, w->last))
				return 1;
	return 0;
}

static int conflicts(const struct srdma_exposed_file *f,
		     const struct srdma_exposure *w)
{
	for (const struct srdma_exposed_set *s = f->sets; s; s = s->next)
		if (s->trust != w->trust && set_meets(s, w))
			return 1;
	return 0;
}

static struct srdma_exposed_file *file_of(struct srdma_exposed_table *t,
					  const struct srdma_exposure *w)
{
	struct srdma_exposed_file **at = place_of(t, w->dev, w->ino);

	if (*at)
		return *at;
	*at = calloc(1, sizeof(**at));
	if (*at) {
		(*at)->dev = w->dev;
		(*at)->ino = w->ino;
	}
	return *at;
}

static struct srdma_exposed_set *set_of(struct srdma_exposed_file *f,
					uint64_t trust)
{
	struct srdma_exposed_set *s = f->sets;

	while (s && s->trust != trust)
		s = s->next;
	if (s)
		return s;
	s = calloc(1, sizeof(*s));
	if (s) {
		s->next = f->sets;
		s->file = f;
		s->trust = trust;
		f->sets = s;
	}
	return s;
}

static void drop_empty_file(struct srdma_exposed_table *t,
			    struct srdma_exposed_file *f)
{
	struct srdma_exposed_file **at;

	if (f->sets)
		return;
	at = place_of(t, f->dev, f->ino);
	*at = f->next;
	free(f);
}

/* RFC 5042 R6.3.6-1 */
int srdma_exposed_add(struct srdma_exposed_table *t, struct srdma_exposed *e,
		      const struct srdma_exposure *what, uint32_t priority)
{
	struct srdma_exposed_file *f = file_of(t, what);
	struct srdma_exposed_set *s;

	if (!f)
		return -ENOMEM;
	if (conflicts(f, what))
		return -EBUSY;
	s = set_of(f, what->trust);
	if (!s) {
		drop_empty_file(t, f);
		return -ENOMEM;
	}
	*e = (struct srdma_exposed){
		.set = s,
		.first = what->first,
		.last = what->last,
		.most = what->last,
		.priority = priority,
		.written = what->written != 0,
		.shared = what->shared != 0,
	};
	insert(&s->root[e->written][e->shared], e);
	s->ranges++;
	return 0;
}

void srdma_exposed_remove(struct srdma_exposed_table *t,
			  struct srdma_exposed *e)
{
	struct srdma_exposed_set *s = e->set, **at;
	struct srdma_exposed **root;

	if (!s)
		return;
	root = &s->root[e->written][e->shared];
	*root = without(*root, e);
	e->set = NULL;
	if (--s->ranges)
		return;
	at = &s->file->sets;
	while (*at != s)
		at = &(*at)->next;
	*at = s->next;
	drop_empty_file(t, s->file);
	free(s);
}
