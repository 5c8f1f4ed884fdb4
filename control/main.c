/*
 * srdma-control: ends the control links of a host's proxy on a NIC without an
 * agent (docs/control-link.md 7). This file contains the startup of the process;
 * server.c is its main loop.
 */
#include <stdio.h>

#include "control/server.h"
#include "control/settings.h"
#include "offload/log.h"
#include "offload/process.h"

enum { EXIT_OK = 0, EXIT_START = 1, EXIT_USAGE = 2 };

int main(int argc, char **argv)
{
	struct settings s;

	log_name_program("srdma-control");
	switch (settings_parse(&s, argc, argv)) {
	case SETTINGS_HELP:
		return fputs(settings_help(), stdout) < 0 ? EXIT_START
							  : EXIT_OK;
	case SETTINGS_VERSION:
		return fputs(settings_version(), stdout) < 0 ? EXIT_START
							     : EXIT_OK;
	case SETTINGS_WRONG:
		log_error("%s", s.error);
		return EXIT_USAGE;
	case SETTINGS_RUN:
		break;
	}
	process_harden();
	process_raise_files();
	return server_run(&s) < 0 ? EXIT_START : EXIT_OK;
}
