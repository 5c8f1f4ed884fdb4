#include "support/says.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "srdma/device.h"

void says(const char *part)
{
	if (!strstr(srdma_error_text(), part))
		fail_msg("\"%s\" is not in: %s", part, srdma_error_text());
}
