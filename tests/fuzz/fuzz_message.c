/*
 * Messages of an agent of arbitrary bytes (docs/agent.md 2): the parser stays in
 * bounds, and each text that it returns ends within its field.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "host/message.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *text, size_t room)
{
	if (memchr(text, '\0', room) == NULL)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct srdma_agent_event e;

	if (srdma_message_parse(&e, data, size))
		return 0;
	check_text(e.event, sizeof(e.event));
	check_text(e.code, sizeof(e.code));
	check_text(e.text, sizeof(e.text));
	check_text(e.peer.identity, sizeof(e.peer.identity));
	if (!*e.event)
		abort();
	return 0;
}
