/*
 * srdma-offload: the worker of one NIC. This file contains the startup of the
 * process; supervisor.c starts and stops the worker processes; worker.c is the
 * main loop of one.
 */
#include <stdio.h>

#include "supervisor.h"
#include "log.h"
#include "options.h"
#include "process.h"
#include "crypto/suite.h"
#include "wire/icrc.h"

enum { EXIT_OK = 0, EXIT_START = 1, EXIT_USAGE = 2 };

/* A worker must not run with a suite that this machine computes incorrectly. */
static int selftest(void)
{
	const struct srdma_suite *s;
	int rc;

	for (unsigned i = 0; (s = srdma_suite_at(i)) != NULL; i++) {
		rc = srdma_suite_selftest(s, NULL);
		if (rc < 0) {
			log_error("suite %s fails its self-test: check the "
				  "OpenSSL library of this machine",
				  s->name);
			return rc;
		}
	}
	return 0;
}

int main(int argc, char **argv)
{
	struct options o;

	switch (options_parse(&o, argc, argv)) {
	case OPTIONS_HELP:
		return fputs(options_help(), stdout) < 0 ? EXIT_START : EXIT_OK;
	case OPTIONS_VERSION:
		return fputs(options_version(), stdout) < 0 ? EXIT_START
							    : EXIT_OK;
	case OPTIONS_WRONG:
		log_error("%s", o.error);
		return EXIT_USAGE;
	case OPTIONS_RUN:
		break;
	}
	log_set_level(o.log_level);
	if (o.allow_unprotected)
		log_info("QPs without any protection are permitted "
			 "(--allow-unprotected)");
	srdma_icrc_choose();
	process_harden();
	process_raise_files();
	return selftest() < 0 || supervisor_run(&o) < 0 ? EXIT_START : EXIT_OK;
}
