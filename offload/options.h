/* Options of srdma-offload: parsing, checks and defaults. */
#ifndef OFFLOAD_OPTIONS_H
#define OFFLOAD_OPTIONS_H

#include <stdint.h>

#include "gid.h"
#include "log.h"
#include "pin.h"
#include "port/port.h"
#include "broadcast.h"

#define OPTIONS_NO_UID UINT64_MAX

enum {
	OPTIONS_PATH_LEN = 108, /* size of sun_path, including the
				   terminating zero */
	OPTIONS_ERROR_LEN = 256,
};

struct options {
	char name[SRDMA_NAME_LEN];
	char control[OPTIONS_PATH_LEN];
	const char *host_dev;	 /* "shm" or an RDMA device */
	const char *wire_dev;	 /* "shm:DIR", "udp" or an RDMA device */
	const char *wire_listen; /* "IP:PORT", or NULL; for udp also "IP" */
	const char *host_listen; /* "IP" or "IP:PORT", or NULL */
	uint8_t gid
		[SRDMA_CTL_GID_LEN]; /* of all worker processes; zeros: none */
	uint32_t workers;
	struct pin pin;
	uint64_t agent_uid; /* OPTIONS_NO_UID: not given */
	int allow_unprotected;
	int wire_trains; /* bare datagrams over IPv4 (docs/protocol.md 11a) */
	int memfd_only;	 /* memory of other processes is not copied */
	uint32_t stats;	 /* seconds between lines of statistics; 0: none */
	uint32_t mtu, window, reads;
	uint32_t key_cache; /* number of keyed contexts to keep; 0: none */
	uint32_t max_qps;
	uint32_t table_mib;	      /* MiB; 0: no limit */
	uint32_t ping_ms, silence_ms; /* silence_ms > ping_ms */
	/* use of an epoch before the next key is requested */
	uint64_t rekey_packets, rekey_bytes;
	uint32_t rekey_ms;
	const char *provider; /* NULL: the fastest */
	enum log_level log_level;
	char address[SRDMA_NAME_LEN]; /* storage for wire_listen of a worker
					 process */
	char host_address[SRDMA_NAME_LEN]; /* for its host_listen */
	char error[OPTIONS_ERROR_LEN];
};

enum options_result {
	OPTIONS_RUN,
	OPTIONS_HELP, /* for this and OPTIONS_VERSION: print the text and
			 exit */
	OPTIONS_VERSION,
	OPTIONS_WRONG, /* error holds what was wrong and what to do */
};

/* Parse argv into *o. *o keeps pointers into argv. */
enum options_result options_parse(struct options *o, int argc, char **argv);

/*
 * The options of worker process i: NAME.i, PATH.i and port + i; those of worker
 * process 0 are unchanged. Returns OPTIONS_RUN, or OPTIONS_WRONG with
 * out->error if a name is too long or a port too high. out->wire_listen and
 * out->host_listen may point into *out: do not move it.
 */
enum options_result options_of_process(struct options *out,
				       const struct options *o, unsigned i);

/* Texts of --help and --version, with their newlines. */
const char *options_help(void);
const char *options_version(void);

#endif
