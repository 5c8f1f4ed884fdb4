/*
 * Options of srdma-offload: parsed, checked and completed with defaults.
 */
#ifndef OFFLOAD_OPTIONS_H
#define OFFLOAD_OPTIONS_H

#include <stdint.h>

#include "log.h"
#include "pin.h"
#include "port/port.h"
#include "broadcast.h"

enum {
	OPTIONS_PATH_LEN = 108, /* sun_path, its zero included */
	OPTIONS_ERROR_LEN = 256,
};

struct options {
	char name[SRDMA_NAME_LEN];
	char control[OPTIONS_PATH_LEN];
	const char *host_dev;	 /* "shm", or an RDMA device */
	const char *wire_dev;	 /* "shm:DIR", "udp", or an RDMA device */
	const char *wire_listen; /* "IP:PORT", or NULL; udp: "IP" will do */
	uint32_t threads;
	struct pin pin;
	int allow_unprotected;
	uint32_t stats; /* seconds between lines, 0: never */
	uint32_t mtu, window, reads;
	uint32_t key_cache; /* keyed contexts kept, 0: none */
	uint32_t max_qps;
	uint32_t table_mib;	      /* 0: no limit */
	uint32_t ping_ms, silence_ms; /* the latter is longer */
	/* of an epoch, until another one is wanted */
	uint64_t rekey_packets, rekey_bytes;
	uint32_t rekey_ms;
	const char *provider; /* NULL: the fastest */
	enum log_level log_level;
	char address[SRDMA_NAME_LEN]; /* a thread's own, for its wire_listen */
	char error[OPTIONS_ERROR_LEN];
};

enum options_result {
	OPTIONS_RUN,
	OPTIONS_HELP, /* and OPTIONS_VERSION: print the text and end */
	OPTIONS_VERSION,
	OPTIONS_WRONG, /* error: what was wrong and what would be right */
};

/* argv must outlive o. */
enum options_result options_parse(struct options *o, int argc, char **argv);

/*
 * What thread i takes of them: NAME.i, PATH.i and port + i; thread 0 what they
 * say. OPTIONS_RUN, or OPTIONS_WRONG: one is too long, or too high. out must
 * not move any more.
 */
enum options_result options_of_process(struct options *out,
				      const struct options *o, unsigned i);

/* Texts of --help and --version, with their newlines. */
const char *options_help(void);
const char *options_version(void);

#endif
