#include "verbs/map.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	ALONE_LINKS =
		3, /* links of /proc/self/task of a process with one thread */
	LINE = 512,
};

/* Bytes by which mremap() may enlarge the memory, as realloc() does. The file has
 * no pages for them. */
#define GROWTH (UINT64_C(1) << 40)

struct verbs_map {
	char *addr;
	size_t length;
	int fd;
	unsigned users; /* ranges */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct verbs_range *ranges;

/* --- what may be moved ---------------------------------------------------------- */

/* 1: no other thread can write to the memory now. */
static int is_alone(void)
{
	struct stat st;

	return !stat("/proc/self/task", &st) && st.st_nlink == ALONE_LINKS;
}

static int overlaps(const struct verbs_range *r, const char *addr,
		    size_t length)
{
	return r->addr < addr + length && addr < r->addr + r->length;
}

/* 1: the worker writes some of the memory through another region now. */
static int is_registered(const char *addr, size_t length)
{
	const struct verbs_range *r = ranges;

	while (r && !overlaps(r, addr, length))
		r = r->next;
	return r != NULL;
}

/* A line of /proc/self/maps. */
struct line {
	uintptr_t from, to;
	char rights[5], name[16];
	unsigned long offset, inode;
};

/* Private memory of no file that may be read and written. */
static int is_anonymous(const struct line *l, const struct verbs_map *map)
{
	(void)map;
	return !strcmp(l->rights, "rw-p") && !l->inode &&
	       (!*l->name || !strcmp(l->name, "[heap]"));
}

/* The memfd of the map, where it was mapped. */
static int is_in_place(const struct line *l, const struct verbs_map *map)
{
	struct stat st;

	return !strcmp(l->rights, "rw-s") && !fstat(map->fd, &st) &&
	       l->inode == st.st_ino &&
	       l->from - l->offset == (uintptr_t)map->addr;
}

/* 1: all of the memory is so. The lines are in ascending order. */
static int is_all(const char *addr, size_t length,
		  int (*is)(const struct line *l, const struct verbs_map *map),
		  const struct verbs_map *map)
{
	FILE *file = fopen("/proc/self/maps", "re");
	uintptr_t at = (uintptr_t)addr;
	const uintptr_t end = at + length;
	char text[LINE];

	while (file && at < end && fgets(text, sizeof(text), file)) {
		struct line l = { 0 };

		if (sscanf(text,
			   "%" SCNxPTR "-%" SCNxPTR " %4s %lx %*x:%*x %lu %15s",
			   &l.from, &l.to, l.rights, &l.offset, &l.inode,
			   l.name) >= 5 &&
		    l.from <= at && at < l.to && is(&l, map))
			at = l.to;
	}
	if (file)
		fclose(file);
	return at >= end;
}

static int may_be_moved(const char *addr, size_t length)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE),
			from = (uintptr_t)addr;

	return length && !(from % page) && !(length % page) &&
	       from + length > from && is_alone() &&
	       !is_registered(addr, length) &&
	       is_all(addr, length, is_anonymous, NULL);
}

/* --- moving ----------------------------------------------------------------------- */

/* Copies the memory into other pages, which then take its place. 0 or -1. */
static int replace(char *addr, size_t length, int flags, int fd)
{
	char *copy = mmap(NULL, length, PROT_READ | PROT_WRITE, flags, fd, 0);
	sigset_t all, before;
	void *moved;

	if (copy == MAP_FAILED)
		return -1;
	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	memcpy(copy, addr, length);
	moved = mremap(copy, length, length, MREMAP_MAYMOVE | MREMAP_FIXED,
		       addr);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (moved != MAP_FAILED)
		return 0;
	munmap(copy, length);
	return -1;
}

static int new_file(size_t length)
{
	int fd = memfd_create("srdma-region", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	if (fd < 0)
		return -1;
	if (!ftruncate(fd, (off_t)(length + GROWTH)) &&
	    !fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK))
		return fd;
	close(fd);
	return -1;
}

/* NULL: the memory is as it was. */
static struct verbs_map *move(char *addr, size_t length)
{
	struct verbs_map *map = malloc(sizeof(*map));

	if (!map)
		return NULL;
	*map = (struct verbs_map){ .addr = addr,
				   .length = length,
				   .fd = new_file(length) };
	if (map->fd >= 0 && !replace(addr, length, MAP_SHARED, map->fd)) {
		/* A child would share the memory, not copy it. */
		madvise(addr, length, MADV_DONTFORK);
		return map;
	}
	if (map->fd >= 0)
		close(map->fd);
	free(map);
	return NULL;
}

static void move_back(struct verbs_map *map)
{
	/* The program may have unmapped the memory already. */
	if (is_alone() && !is_registered(map->addr, map->length) &&
	    is_all(map->addr, map->length, is_in_place, map))
		replace(map->addr, map->length, MAP_PRIVATE | MAP_ANONYMOUS,
			-1);
	close(map->fd);
	free(map);
}

/* --- the table -------------------------------------------------------------------- */

/* The map of another range that has all of the memory; NULL: none. */
static struct verbs_map *find(const char *addr, size_t length)
{
	for (struct verbs_range *r = ranges; r; r = r->next)
		if (r->map && r->map->addr <= addr &&
		    addr + length <= r->map->addr + r->map->length &&
		    is_all(addr, length, is_in_place, r->map))
			return r->map;
	return NULL;
}

void verbs_map_enter(struct verbs_range *range, void *addr, size_t length,
		     int may_move)
{
	struct verbs_map *map;

	pthread_mutex_lock(&lock);
	map = find(addr, length);
	if (!map && may_move && may_be_moved(addr, length))
		map = move(addr, length);
	if (map)
		map->users++;
	*range = (struct verbs_range){
		.next = ranges, .addr = addr, .length = length, .map = map
	};
	ranges = range;
	pthread_mutex_unlock(&lock);
}

void verbs_map_leave(struct verbs_range *range)
{
	struct verbs_range **at = &ranges;

	pthread_mutex_lock(&lock);
	while (*at != range)
		at = &(*at)->next;
	*at = range->next;
	if (range->map && !--range->map->users)
		move_back(range->map);
	pthread_mutex_unlock(&lock);
}

int verbs_map_fd(const struct verbs_range *range, uint64_t *offset)
{
	*offset = range->map ? (uint64_t)(range->addr - range->map->addr) : 0;
	return range->map ? range->map->fd : -1;
}
