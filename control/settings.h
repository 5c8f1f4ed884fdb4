/* Options of srdma-control: parsing, checks and defaults. */
#ifndef CONTROL_SETTINGS_H
#define CONTROL_SETTINGS_H

#include <stdint.h>
#include <sys/socket.h>

enum { SETTINGS_ERROR_LEN = 256 };

/* Files of the control identity, as PEM. */
struct settings_files {
	const char *cert, *key, *ca;
	const char *crl; /* NULL: no revocation list is checked */
};

struct settings {
	struct sockaddr_storage listen;
	const char *control; /* path of the worker's control socket */
	struct settings_files files;
	const char *peer;    /* identity of the proxy */
	uint32_t worker_uid; /* user of the worker, besides this one and root;
				UINT32_MAX: none */
	char error[SETTINGS_ERROR_LEN];
};

enum settings_result {
	SETTINGS_RUN,
	SETTINGS_HELP, /* for this and SETTINGS_VERSION: print the text and
			  exit */
	SETTINGS_VERSION,
	SETTINGS_WRONG, /* error holds what was wrong and what to do */
};

/* Parses argv into *s, which keeps pointers into argv. */
enum settings_result settings_parse(struct settings *s, int argc, char **argv);

/* Texts of --help and --version, with their newlines. */
const char *settings_help(void);
const char *settings_version(void);

#endif
